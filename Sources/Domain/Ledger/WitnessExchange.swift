public import Vocabulary

/// The requests and answers that submit one checkpoint to one witness (C2SP tlog-witness, `add-checkpoint`). Does no I/O.
public struct WitnessExchange: Sendable {
    public enum Step: Sendable, Equatable {
        /// Send another request, with a proof from `oldSize`.
        case ask
        case cosigned(SignedNote.Signature)
        case failed(WitnessFailure)
    }

    private let key: VerifierKey
    private let head: SignedNote
    private let size: UInt64
    /// The size that the witness is assumed to have cosigned. The proof starts there.
    public private(set) var oldSize: UInt64
    private var corrections = 0

    /// Another log server may submit in parallel, so the witness may correct our size. The limit prevents endless requests.
    private static let correctionLimit = 2

    /// - Parameters:
    ///   - key: the witness's key.
    ///   - head: a checkpoint with the log's signature.
    ///   - size: the checkpoint's size.
    ///   - knownSize: the size that the witness cosigned last. 0 if unknown.
    public init(key: VerifierKey, head: SignedNote, size: UInt64, knownSize: UInt64) {
        (self.key, self.head, self.size, oldSize) = (key, head, size, min(knownSize, size))
    }

    /// Returns the body of the next request.
    /// - Parameter proof: from `oldSize` to the checkpoint's size. Empty if `oldSize` is 0 or equal to it.
    public func body(proof: [Digest]) -> [UInt8] {
        let lines = ["old \(oldSize)"] + proof.map(\.base64)
        return Array((lines.joined(separator: "\n") + "\n\n").utf8) + head.encoded
    }

    /// Processes an answer.
    /// - Parameter dates: the accepted dates of a cosignature, unix seconds.
    public mutating func take(
        status: UInt16, contentType: String?, body: [UInt8], dates: ClosedRange<UInt64>
    ) -> Step {
        switch status {
        case 200: cosignature(body, dates)
        case 409: correct(contentType, body)
        // Our proof was verified against the signed root, so the witness has another tree.
        case 422 where oldSize > 0: .failed(.forked(size: oldSize))
        case 403: .failed(.untrusted)
        case 404: .failed(.unknownLog)
        default: .failed(.refused(status: status))
        }
    }

    private func cosignature(_ body: [UInt8], _ dates: ClosedRange<UInt64>) -> Step {
        // The answer must only add lines under our text.
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
        // The witness has a checkpoint of this size with another root. Size 0 is exempt, since all empty trees are equal.
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

/// Why a witness's answer has no usable cosignature.
public enum WitnessFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The witness claims to have cosigned more entries than the log has.
    case ahead(claimed: UInt64, size: UInt64)
    /// The witness has cosigned another tree of `size` entries.
    case forked(size: UInt64)
    case untrusted
    case unknownLog
    case refused(status: UInt16)
    case malformed
    /// No signature in the answer has the witness's key name.
    case unsigned
    case forged
    case misdated
    case restless

    /// True if the witness claims that this log was rewritten or set back, which is worse than no answer.
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
