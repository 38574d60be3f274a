import Linux
public import Sealing
import Sodium
import Synchronization
import Vocabulary

/// The secrets that webhooks are signed by: several hold at once while one takes another's place. They lie in the arena and are printed nowhere.
public final class WebhookSecrets: Sendable {
    /// The dashboard's secret is taken as it is; at most what a slot of the arena holds.
    public static let range = 1...Secret.largestCount
    /// The least that can't be guessed from one signature.
    public static let safe = 16
    public static let most = 8

    private let own: Secret?
    private let path: String?
    private let secrets: Mutex<[Secret]>

    /// - Parameters:
    ///   - own: one that no file holds. - path: of a file with one secret a line, read now and again by `reload`.
    public init(own: Secret?, path: String?) throws(WebhookSecretsError) {
        self.own = own
        self.path = path
        secrets = Mutex(try Self.read(path) + [own].compactMap(\.self))
    }

    /// Reads the file again. If it is no good the secrets stay as they are.
    public func reload() throws(WebhookSecretsError) {
        let new = try Self.read(path) + [own].compactMap(\.self)
        secrets.withLock { $0 = new }
    }

    /// How many are in use.
    public var count: Int { secrets.withLock { $0.count } }

    /// How many of them can be found by trying, by whoever has seen one webhook.
    public var guessable: Int { secrets.withLock { $0.count { $0.count < Self.safe } } }

    /// Whether `signature` is the lower-case hexadecimal of HMAC-SHA256 over `body` by one of the secrets. Which one, and where a wrong one
    /// differs, its time does not tell.
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

    /// - Throws: `.length`, and what the arena throws.
    public static func secret(_ bytes: Span<UInt8>) throws(WebhookSecretsError) -> Secret {
        guard range.contains(bytes.count) else { throw .length }
        // What stands at an end was pasted along.
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

/// Why secrets of webhooks are not taken. It holds nothing of them, nor the file's name, in whose place one may stand.
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
