import Linux
import Sodium
public import Vocabulary

/// The log's Ed25519 key, in locked memory. Its file is text with mode 0600:
///
///     mayfly ledger key v1
///     <origin>
///     <base64 of the 32-byte seed>
public struct SigningKey: Sendable {
    public enum Failure: Error, Sendable, Equatable, CustomStringConvertible {
        case missing(path: String)
        case exists(path: String)
        case notAFile(path: String)
        case wrongOwner(path: String, why: String)
        /// Others may read or change the file.
        case looseMode(path: String, why: String)
        case malformed(path: String)
        case badOrigin
        case io(Errno)
        case memory(LockedMemory.Unavailable)

        public var description: String {
            switch self {
            case .missing(let path): "the ledger key \(ShownPath(path)) is missing. Make one with `mayfly keys init`"
            case .exists(let path): "\(ShownPath(path)) exists and is not replaced, since a new key would start a new log"
            case .notAFile(let path): "\(ShownPath(path)) is not a regular file. Links and devices are refused"
            case .wrongOwner(let path, let why): "\(ShownPath(path)) \(why). Run this as that user, or chown it"
            case .looseMode(let path, let why):
                "\(ShownPath(path)) \(why). Set it to 0600. If others have an account here, make another key with `mayfly keys rotate`"
            case .malformed(let path): "\(ShownPath(path)) is not a ledger key"
            case .badOrigin:
                "the origin must be a host and path such as log.example/mayfly, without scheme, white space or plus sign"
            case .io(let error): error.description
            case .memory(let error): error.description
            }
        }
    }

    static let header = "mayfly ledger key v1"

    /// The key's name is the log's origin.
    public let verifierKey: VerifierKey
    private let key: Ed25519.PrivateKey

    /// - Parameter seed: 32 bytes, which the caller wipes.
    public init(origin: String, seed: Span<UInt8>) throws(Failure) {
        do {
            key = try Ed25519.PrivateKey(seed: seed)
        } catch { throw .memory(error) }
        guard let verifierKey = VerifierKey(name: origin, publicKey: key.publicKey) else { throw .badOrigin }
        self.verifierKey = verifierKey
    }

    /// Makes a new key and durably writes its file.
    /// - Throws: `.exists` if the file exists.
    public static func make(origin: String, at path: String) throws(Failure) -> SigningKey {
        guard !File.exists(path) else { throw .exists(path: path) }
        var seed = [UInt8](repeating: 0, count: Ed25519.seedCount)
        defer { Sodium.wipe(&seed) }
        var span = seed.mutableSpan
        Sodium.fillRandom(&span)
        let key = try SigningKey(origin: origin, seed: seed.span)
        var text = Array("\(header)\n\(origin)\n".utf8)
        text.reserveCapacity(text.count + 64)
        defer { Sodium.wipe(&text) }
        let start = text.count
        text.append(contentsOf: repeatElement(0x0a, count: Base64.standard.encodedCount(seed.count) + 1))
        var all = text.mutableSpan
        var digits = all._mutatingExtracting(start..<all.count - 1)
        Base64.standard.encode(seed.span, into: &digits)
        do {
            try File.replaceDurably(path, text.span, mode: 0o600)
        } catch { throw .io(error) }
        return key
    }

    /// Reads the key's file.
    public static func load(_ path: String) throws(Failure) -> SigningKey {
        var text: [UInt8]
        do {
            guard let status = try File.status(path, followLinks: false) else { throw Failure.missing(path: path) }
            guard status.kind == .file else { throw Failure.notAFile(path: path) }
            if let why = status.exposure {
                throw status.isOwn ? Failure.looseMode(path: path, why: why) : .wrongOwner(path: path, why: why)
            }
            text = try File.read(path, limit: 4096)
        } catch let error as Errno {
            throw .io(error)
        } catch let error as Failure {
            throw error
        } catch { throw .malformed(path: path) }
        defer { Sodium.wipe(&text) }
        var seed = [UInt8](repeating: 0, count: Ed25519.seedCount + 1)
        defer { Sodium.wipe(&seed) }
        var span = seed.mutableSpan
        // Indices instead of slices: a slice would retain the buffer, and the wipe would hit a copy.
        let ends = text.indices.filter { text[$0] == 0x0a }
        guard ends.count == 3, ends[2] == text.count - 1, text[..<ends[0]].elementsEqual(header.utf8),
            let origin = String(validating: text[ends[0] + 1..<ends[1]], as: UTF8.self),
            Base64.standard.decode(text.span.extracting(ends[1] + 1..<ends[2]), into: &span) == Ed25519.seedCount
        else { throw .malformed(path: path) }
        return try SigningKey(origin: origin, seed: seed.span.extracting(0..<Ed25519.seedCount))
    }

    /// Signs a checkpoint of this key's log.
    public func sign(size: UInt64, root: Digest) -> SignedNote {
        sign(Checkpoint(origin: verifierKey.name, size: size, root: root).text)
    }

    /// Signs an operator's statement. The text must end with a newline and must not be a checkpoint.
    public func sign(statement text: String) -> SignedNote {
        precondition(Checkpoint(text: text) == nil, "a statement that reads as a checkpoint")
        return sign(text)
    }

    func sign(_ text: String) -> SignedNote {
        let signature = key.sign(Array(text.utf8).span)
        return SignedNote(text: text, signatures: [.init(name: verifierKey.name, keyID: verifierKey.id, bytes: signature)])
    }
}
