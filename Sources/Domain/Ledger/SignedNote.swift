import Sodium
public import Vocabulary

/// A text and the signatures under it (C2SP signed-note): text, an empty line, lines `— <name> <base64(key id || signature)>`.
public struct SignedNote: Sendable, Hashable {
    public struct Signature: Sendable, Hashable {
        public let name: String
        public let keyID: UInt32
        /// Without the key id.
        public let bytes: [UInt8]

        public init(name: String, keyID: UInt32, bytes: [UInt8]) {
            (self.name, self.keyID, self.bytes) = (name, keyID, bytes)
        }

        public static func == (left: Signature, right: Signature) -> Bool {
            left.keyID == right.keyID && left.bytes == right.bytes && left.name.hasSameBytes(as: right.name)
        }
    }

    /// Longer notes and notes with more signatures are refused.
    static let byteLimit = 64 << 10
    private static let signatureLimit = 64

    /// Ends with a newline, which is part of the signed text.
    public let text: String
    public private(set) var signatures: [Signature]

    /// - Precondition: `text` ends with a newline.
    public init(text: String, signatures: [Signature]) {
        precondition(text.hasSuffix("\n"))
        (self.text, self.signatures) = (text, signatures)
    }

    /// Reads a note without verifying its signatures. Returns nil if it is malformed.
    public init?(_ bytes: [UInt8]) {
        guard bytes.count <= Self.byteLimit, let note = String(validating: bytes, as: UTF8.self),
            bytes.allSatisfy({ $0 >= 0x20 || $0 == 0x0a }), bytes.last == 0x0a,
            let split = bytes.indices.dropLast().last(where: { bytes[$0] == 0x0a && bytes[$0 + 1] == 0x0a })
        else { return nil }
        // Split by bytes: a name may start with a combining character, which merges with the space before it.
        let view = note.utf8
        let end = view.index(view.startIndex, offsetBy: split + 1)
        let lines = view[view.index(after: end)...].split(separator: 0x0a, omittingEmptySubsequences: false).dropLast()
        guard (1...Self.signatureLimit).contains(lines.count) else { return nil }
        var signatures: [Signature] = []
        for line in lines {
            let parts = line.split(separator: 0x20, omittingEmptySubsequences: false).map { String(Substring($0)) }
            guard parts.count == 3, parts[0].hasSameBytes(as: "\u{2014}"), VerifierKey.isName(parts[1]),
                let bytes = Base64.standard.decode(parts[2]), bytes.count > 4
            else { return nil }
            let id = bytes.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
            signatures.append(Signature(name: parts[1], keyID: id, bytes: Array(bytes.dropFirst(4))))
        }
        self.init(text: String(Substring(view[..<end])), signatures: signatures)
    }

    /// The note's file.
    public var encoded: [UInt8] {
        var note = text + "\n"
        for signature in signatures {
            let bytes = [UInt8](bigEndian: signature.keyID) + signature.bytes
            note += "\u{2014} \(signature.name) \(Base64.standard.encode(bytes.span))\n"
        }
        return Array(note.utf8)
    }

    /// Returns true if `key` has signed. Other keys' lines are ignored. Each line with this key's name and id must be valid.
    public func isSigned(by key: VerifierKey) -> Bool {
        let own = signatures.filter(key.isNamed(by:))
        return !own.isEmpty && own.allSatisfy { key.isValid($0.bytes, text: text) }
    }

    public mutating func append(_ signature: Signature) { signatures.append(signature) }
}

extension SignedNote {
    /// Returns the checkpoint if `key` has signed it and its origin is the key's name, otherwise nil.
    public func checkpoint(signedBy key: VerifierKey) -> Checkpoint? {
        guard isSigned(by: key), let checkpoint = Checkpoint(text: text), checkpoint.origin.hasSameBytes(as: key.name) else {
            return nil
        }
        return checkpoint
    }
}

extension String {
    /// Compares bytes. `==` would ignore different encodings of a character, which a signer can choose.
    func hasSameBytes(as other: String) -> Bool { utf8.elementsEqual(other.utf8) }
}

/// The head of a log (C2SP tlog-checkpoint without extension lines): `origin\nsize\nbase64(root)\n`.
public struct Checkpoint: Sendable, Hashable {
    /// The log's name: its URL without the scheme, which is also the name of its key.
    public var origin: String
    public var size: UInt64
    public var root: Digest

    public init(origin: String, size: UInt64, root: Digest) {
        (self.origin, self.size, self.root) = (origin, size, root)
    }

    /// The limit of signed 64-bit integers, which log readers in other languages use.
    private static let sizeLimit = UInt64(Int64.max)

    /// Reads the text of a note. Returns nil if it is not a checkpoint.
    public init?(text: String) {
        let lines = text.utf8.split(separator: 0x0a, omittingEmptySubsequences: false).map { String(Substring($0)) }
        guard lines.count == 4, lines[3].isEmpty, VerifierKey.isName(lines[0]), let size = UInt64(lines[1]),
            String(size) == lines[1], size <= Self.sizeLimit,
            let bytes = Base64.standard.decode(lines[2]), let root = Digest(bytes: bytes.span)
        else { return nil }
        self.init(origin: lines[0], size: size, root: root)
    }

    public var text: String { "\(origin)\n\(size)\n\(root.base64)\n" }
}

/// A public key for notes (C2SP signed-note): `name+hex(key id)+base64(type || key)`.
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

    /// Returns nil if the name is invalid or the key isn't 32 bytes long.
    public init?(name: String, algorithm: Algorithm = .ed25519, publicKey: [UInt8]) {
        guard Self.isName(name), publicKey.count == Ed25519.publicKeyCount else { return nil }
        self.name = name
        self.algorithm = algorithm
        self.publicKey = publicKey
        let digest = Digest.sha256((Array(name.utf8) + [0x0a, algorithm.rawValue] + publicKey).span)
        id = UInt32(digest.first >> 32)
    }

    /// Reads the text form. White space at the end is allowed. Returns nil if it is malformed or the id doesn't match the key.
    public init?(_ text: String) {
        var text = text[...]
        while let last = text.last, last.isWhitespace { text.removeLast() }
        // The base64 may contain plus signs.
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

    /// Returns true if the signature has this key's name and id.
    public func isNamed(by signature: SignedNote.Signature) -> Bool {
        signature.keyID == id && signature.name.hasSameBytes(as: name)
    }

    /// Returns true if `signature` (without the key id) is valid for the note's `text`.
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

    /// Returns the unix seconds at the start of a witness's signature. Returns nil for another length or a time above 2^63 - 1.
    public static func cosignatureSeconds(_ signature: [UInt8]) -> UInt64? {
        guard signature.count == 8 + Ed25519.signatureCount else { return nil }
        let seconds = signature.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        return seconds <= UInt64(Int64.max) ? seconds : nil
    }

    /// Returns true for a name of at least one character without white space, control characters and plus signs.
    fileprivate static func isName(_ name: some StringProtocol) -> Bool {
        !name.isEmpty
            && name.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7f && $0 != "+" && !$0.properties.isWhitespace }
    }

    private var idText: String { Hex.encode([UInt8](bigEndian: id).span) }
}
