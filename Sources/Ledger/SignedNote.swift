import Sodium

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

    /// Longer notes, or ones with more signatures, are refused unread.
    static let byteLimit = 64 << 10
    static let signatureLimit = 64

    /// Ends with a newline, which is signed too.
    public let text: String
    public private(set) var signatures: [Signature]

    /// `text` must end with a newline.
    public init(text: String, signatures: [Signature]) {
        precondition(text.hasSuffix("\n"))
        (self.text, self.signatures) = (text, signatures)
    }

    /// Reads a note; nil if it is malformed. Says nothing about whether its signatures hold.
    public init?(_ bytes: [UInt8]) {
        guard bytes.count <= Self.byteLimit, let note = String(validating: bytes, as: UTF8.self),
            bytes.allSatisfy({ $0 >= 0x20 || $0 == 0x0a }), bytes.last == 0x0a,
            let split = bytes.indices.dropLast().last(where: { bytes[$0] == 0x0a && bytes[$0 + 1] == 0x0a })
        else { return nil }
        // By bytes: a name may begin with a mark that combines with the space before it.
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
            let bytes = Self.idBytes(signature.keyID) + signature.bytes
            note += "\u{2014} \(signature.name) \(Base64.standard.encode(bytes.span))\n"
        }
        return Array(note.utf8)
    }

    /// Whether `key` has signed. Other keys' lines are ignored; a line in this key's name and id that does not hold spoils the note.
    public func isSigned(by key: VerifierKey) -> Bool {
        let own = signatures.filter(key.isNamed(by:))
        return !own.isEmpty && own.allSatisfy { key.isValid($0.bytes, text: text) }
    }

    public mutating func append(_ signature: Signature) { signatures.append(signature) }

    static func idBytes(_ id: UInt32) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: id >> (8 * (3 - $0))) } }
}

extension SignedNote {
    /// Reads a checkpoint that `key` has signed, under the key's own name; nil otherwise.
    public func checkpoint(signedBy key: VerifierKey) -> Checkpoint? {
        guard isSigned(by: key), let checkpoint = Checkpoint(text: text), checkpoint.origin.hasSameBytes(as: key.name) else {
            return nil
        }
        return checkpoint
    }
}

extension String {
    /// Whether two names are one. `==` takes different spellings of a letter for the same, and who signs chooses the spelling.
    func hasSameBytes(as other: String) -> Bool { utf8.elementsEqual(other.utf8) }
}
