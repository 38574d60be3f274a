public import Vocabulary

/// One head put before one witness (C2SP tlog-witness, `add-checkpoint`): what to send, and what follows from the answer. Does no I/O.
public struct WitnessExchange: Sendable {
    public enum Step: Sendable, Equatable {
        /// Ask again, with a proof from `oldSize`.
        case ask
        case cosigned(SignedNote.Signature)
        case failed(WitnessFailure)
    }

    private let key: VerifierKey
    private let head: SignedNote
    private let size: UInt64
    /// The size of which the witness is believed to have the head: where the proof begins.
    public private(set) var oldSize: UInt64
    private var corrections = 0

    /// Another log server may ask beside us; a witness that names ever new sizes is not asked for ever.
    private static let correctionLimit = 2

    /// - Parameters:
    ///   - head: a checkpoint with the log's own signature.
    ///   - size: the checkpoint's.
    ///   - knownSize: what the witness is known to have; 0 if nothing is known.
    public init(key: VerifierKey, head: SignedNote, size: UInt64, knownSize: UInt64) {
        (self.key, self.head, self.size, oldSize) = (key, head, size, min(knownSize, size))
    }

    /// The request's body.
    /// - Parameter proof: from `oldSize` to the head's size; empty when `oldSize` is 0 or that size.
    public func body(proof: [Digest]) -> [UInt8] {
        let lines = ["old \(oldSize)"] + proof.map(\.base64)
        return Array((lines.joined(separator: "\n") + "\n\n").utf8) + head.encoded
    }

    /// What follows from an answer.
    /// - Parameter dates: when a cosignature may be dated, in unix seconds.
    public mutating func take(
        status: UInt16, contentType: String?, body: [UInt8], dates: ClosedRange<UInt64>
    ) -> Step {
        switch status {
        case 200: cosignature(body, dates)
        case 409: correct(contentType, body)
        // The proof was made from our own tiles and leads to the signed root: what the witness has is another tree.
        case 422 where oldSize > 0: .failed(.forked(size: oldSize))
        case 403: .failed(.untrusted)
        case 404: .failed(.unknownLog)
        default: .failed(.refused(status: status))
        }
    }

    private func cosignature(_ body: [UInt8], _ dates: ClosedRange<UInt64>) -> Step {
        // The lines belong under our text, and must not move where it ends.
        guard let note = SignedNote(Array((head.text + "\n").utf8) + body), note.text.hasSameBytes(as: head.text) else {
            return .failed(.malformed)
        }
        let own = note.signatures.filter(key.isNamed(by:))
        guard !own.isEmpty else { return .failed(.unsigned) }
        guard own.allSatisfy({ key.isValid($0.bytes, text: head.text) }) else { return .failed(.forged) }
        guard let signature = own.first(where: { dates.contains(VerifierKey.cosignatureSeconds($0.bytes) ?? .max) }) else {
            return .failed(.misdated)
        }
        return .cosigned(signature)
    }

    private mutating func correct(_ contentType: String?, _ body: [UInt8]) -> Step {
        // The head that the witness has is of this size too, and has another root. There is but one empty tree.
        let isFork = oldSize == size && size > 0
        guard contentType?.prefix(while: { $0 != ";" && $0 != " " }).lowercased() == "text/x.tlog.size" else {
            return .failed(isFork ? .forked(size: size) : .malformed)
        }
        guard let known = Self.size(body) else { return .failed(.malformed) }
        if known > size { return .failed(.ahead(claimed: known, size: size)) }
        if known == oldSize { return .failed(isFork ? .forked(size: size) : .malformed) }
        corrections += 1
        guard corrections <= Self.correctionLimit else { return .failed(.restless) }
        oldSize = known
        return .ask
    }

    private static func size(_ body: [UInt8]) -> UInt64? {
        guard body.count <= 21, body.last == 0x0a, let text = String(validating: body.dropLast(), as: UTF8.self),
            let size = UInt64(text), String(size) == text
        else { return nil }
        return size
    }
}

/// Why a witness's answer brought no cosignature.
public enum WitnessFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// It says that it has cosigned more than there is.
    case ahead(claimed: UInt64, size: UInt64)
    /// What it cosigned at `size` entries is not what this log has there.
    case forked(size: UInt64)
    case untrusted
    case unknownLog
    case refused(status: UInt16)
    case malformed
    /// Nothing in the answer is in its key's name.
    case unsigned
    case forged
    case misdated
    case restless

    /// Whether it says that this log was rewritten or set back. Silence is forgiven more easily than this.
    public var isContradiction: Bool {
        switch self {
        case .ahead, .forked: true
        default: false
        }
    }

    public var description: String {
        switch self {
        case .ahead(let claimed, let size):
            "it reports \(claimed) cosigned entries of this log, which has \(size): either it lies, or database and folder are old copies"
        case .forked(let size):
            "it cosigned another log of \(size) entries: either it lies, or history was rewritten"
        case .untrusted: "it does not trust this log's key (403). Send its operator the line in ledger.vkey"
        case .unknownLog: "it does not know this log's origin (404). Send its operator the line in ledger.vkey"
        case .refused(let status): "it answered \(status)"
        case .malformed: "its answer is malformed"
        case .unsigned: "its answer contains no cosignature by its key. Compare its key with the policy's"
        case .forged: "its cosignature is invalid"
        case .misdated: "its cosignature's time is more than ten minutes off. Compare the clocks"
        case .restless: "it reports a different size on each request"
        }
    }
}
