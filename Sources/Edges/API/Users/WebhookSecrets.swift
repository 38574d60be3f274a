import Linux
public import Sealing
import Sodium
import Synchronization
import Vocabulary

/// The secrets that sign webhooks. Several are valid at once, so that one can replace another. They are kept in the arena and never logged.
public final class WebhookSecrets: Sendable {
    /// Allowed lengths. The maximum is the size of a slot of the arena.
    public static let range = 1...Arena.slotBytes
    /// The shortest length that can't be guessed from one signature.
    public static let safe = 16
    public static let most = 8

    private let own: Secret?
    private let path: String?
    private let secrets: Mutex<[Secret]>

    /// - Parameters:
    ///   - own: a secret that is in no file.
    ///   - path: a file with one secret per line, read now and by `reload`.
    public init(own: Secret?, path: String?) throws(WebhookSecretsError) {
        self.own = own
        self.path = path
        secrets = Mutex(try Self.read(path) + [own].compactMap(\.self))
    }

    /// Reads the file again. If it is invalid, the previous secrets stay in use.
    public func reload() throws(WebhookSecretsError) {
        let new = try Self.read(path) + [own].compactMap(\.self)
        secrets.withLock { $0 = new }
    }

    /// The number of secrets in use.
    public var count: Int { secrets.withLock { $0.count } }

    /// The number of secrets so short that anyone with one webhook can guess them.
    public var guessable: Int { secrets.withLock { $0.count { $0.count < Self.safe } } }

    /// Returns whether `signature` is the lower-case hexadecimal HMAC-SHA256 of `body` with one of the secrets. The time doesn't depend on
    /// which secret matches or where a signature differs.
    func haveSigned(_ body: Span<UInt8>, _ signature: Span<UInt8>) -> Bool {
        var isSigned = false
        for secret in secrets.withLock({ $0 }) {
            let code = secret.withBytes { HMACSHA256.code(body, key: $0) }
            var text = [UInt8](repeating: 0, count: 2 * HMACSHA256.digestCount)
            var room = text.mutableSpan
            Hex.encode(code.span, into: &room)
            if Sodium.equal(text.span, signature) { isSigned = true }
        }
        return isSigned
    }

    /// Copies a secret to the arena.
    /// - Throws: `.length`, `.notText`, or `.file` with `.memory` if the arena is full.
    public static func secret(_ bytes: Span<UInt8>) throws(WebhookSecretsError) -> Secret {
        guard range.contains(bytes.count) else { throw .length }
        // Spaces at the ends were probably pasted by mistake.
        let isText = bytes.indices.allSatisfy { bytes[$0] >= 0x20 && bytes[$0] != 0x7f }
        guard isText, bytes[0] != 0x20, bytes[bytes.count - 1] != 0x20 else { throw .notText }
        do throws(SealingError) {
            return try Secret(copying: bytes)
        } catch { throw .file(.memory(error)) }
    }

    private static func read(_ path: String?) throws(WebhookSecretsError) -> [Secret] {
        guard let path else { return [] }
        let read: Result<[Secret], WebhookSecretsError>
        do throws(JSONWebKeyError) {
            read = try JSONWebKeySource.read(path, isSecret: true) { bytes in
                Result { () throws(WebhookSecretsError) in try lines(bytes) }
            }
        } catch { throw .file(error) }
        return try read.get()
    }

    private static func lines(_ bytes: Span<UInt8>) throws(WebhookSecretsError) -> [Secret] {
        var secrets: [Secret] = []
        var (start, line) = (0, 0)
        while start < bytes.count {
            var end = start
            while end < bytes.count, bytes[end] != 0x0a { end += 1 }
            line += 1
            if end > start {
                guard secrets.count < most else { throw .tooMany }
                do throws(WebhookSecretsError) {
                    secrets.append(try secret(bytes.extracting(start..<end)))
                } catch { throw .line(line, error) }
            }
            start = end + 1
        }
        guard !secrets.isEmpty else { throw .none }
        return secrets
    }
}

/// The reason why secrets of webhooks are refused. Contains neither a secret nor the file's name, because users may write a secret there.
public indirect enum WebhookSecretsError: Error, Sendable, Equatable, CustomStringConvertible {
    case none
    case tooMany
    case length
    case notText
    case line(Int, WebhookSecretsError)
    case file(JSONWebKeyError)

    public var description: String {
        switch self {
        case .none: "contains no secret. Write one per line"
        case .tooMany: "contains more than \(WebhookSecrets.most) secrets. Remove those that are no longer used"
        case .length:
            "a secret must have \(WebhookSecrets.range.lowerBound) to \(WebhookSecrets.range.upperBound) bytes. Make one with `openssl rand -hex 32`"
        case .notText: "a secret must not contain control characters, or spaces at its ends. Check what was pasted"
        case .line(let line, let error): "can't be used: line \(line): \(error)"
        case .file(.exposed(_, let mode)): JSONWebKeyError.exposure(mode)
        case .file(.tooLarge(_, let limit)): "is larger than \(limit) bytes"
        case .file(.memory(let error)): "can't be stored in locked memory: \(error)"
        case .file: "can't be read. Check that it exists and that this user may read it"
        }
    }
}
