import Sodium
import Vocabulary

/// A public key that signs notes (C2SP signed-note): `name+hex(key id)+base64(type || key)`.
public struct VerifierKey: Sendable, Hashable, CustomStringConvertible {
    public enum Algorithm: UInt8, Sendable {
        /// A log's signature over the note's text.
        case ed25519 = 0x01
        /// A witness's timestamped signature over a checkpoint (C2SP tlog-cosignature).
        case cosignature = 0x04
    }

    public let name: String
    public let algorithm: Algorithm
    /// 32 bytes.
    public let publicKey: [UInt8]
    /// The first 4 bytes of SHA-256(name || newline || type || key).
    public let id: UInt32

    /// Nil for a name that notes can't hold, or a key that is not 32 bytes.
    public init?(name: String, algorithm: Algorithm = .ed25519, publicKey: [UInt8]) {
        guard Self.isName(name), publicKey.count == Ed25519.publicKeyCount else { return nil }
        self.name = name
        self.algorithm = algorithm
        self.publicKey = publicKey
        let digest = Digest.sha256((Array(name.utf8) + [0x0a, algorithm.rawValue] + publicKey).span)
        id = UInt32(digest.first >> 32)
    }

    /// Reads the text form; white space at its end is allowed, as a file has it. Nil if it is malformed or its key id is another key's.
    public init?(_ text: String) {
        var text = text[...]
        while let last = text.last, last.isWhitespace { text.removeLast() }
        // The base64 may hold a plus sign of its own.
        let parts = text.utf8.split(separator: UInt8(ascii: "+"), maxSplits: 2, omittingEmptySubsequences: false)
            .map { String(Substring($0)) }
        guard parts.count == 3, let key = Base64.standard.decode(parts[2]), let type = key.first,
            let algorithm = Algorithm(rawValue: type)
        else { return nil }
        self.init(name: parts[0], algorithm: algorithm, publicKey: Array(key.dropFirst()))
        guard idText.hasSameBytes(as: parts[1]) else { return nil }
    }

    public static func == (left: VerifierKey, right: VerifierKey) -> Bool {
        left.id == right.id && left.algorithm == right.algorithm && left.publicKey == right.publicKey
            && left.name.hasSameBytes(as: right.name)
    }

    public var description: String { "\(name)+\(idText)+\(Base64.standard.encode(([algorithm.rawValue] + publicKey).span))" }

    /// Whether a signature is in this key's name and id.
    public func isNamed(by signature: SignedNote.Signature) -> Bool {
        signature.keyID == id && signature.name.hasSameBytes(as: name)
    }

    /// Whether `signature` (without the key id) is this key's over the note's `text`.
    public func isValid(_ signature: [UInt8], text: String) -> Bool {
        switch algorithm {
        case .ed25519:
            return Ed25519.verify(signature.span, message: Array(text.utf8).span, publicKey: publicKey.span)
        case .cosignature:
            guard let seconds = Self.cosignatureSeconds(signature) else { return false }
            let message = "cosignature/v1\ntime \(seconds)\n" + text
            return Ed25519.verify(
                Array(signature.dropFirst(8)).span, message: Array(message.utf8).span, publicKey: publicKey.span)
        }
    }

    /// When a witness signed: the unix seconds at the front of its signature. Nil for another length, or a time past 2^63 - 1.
    public static func cosignatureSeconds(_ signature: [UInt8]) -> UInt64? {
        guard signature.count == 8 + Ed25519.signatureCount else { return nil }
        let seconds = signature.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        return seconds <= UInt64(Int64.max) ? seconds : nil
    }

    /// Not empty, no white space, no control character, no plus sign.
    static func isName(_ name: some StringProtocol) -> Bool {
        !name.isEmpty
            && name.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7f && $0 != "+" && !$0.properties.isWhitespace }
    }

    private var idText: String { Hex.encode(SignedNote.idBytes(id).span) }
}
