/// Reads the answers of one connection as a client, with no I/O. Interim answers (1xx but 101) are passed over.
public final class ResponseParser {
    private let handle: ParserHandle

    public init(limits: MessageLimits = MessageLimits()) {
        handle = ParserHandle(isServer: false, limits: limits)
    }

    /// To be called before the answer to a HEAD request: it has no body whatever its header lines say.
    public func expectNoBody(_ isAnswerToHead: Bool) { unsafe handle.machine.pointee.isAnswerToHead = isAnswerToHead }

    public func parse(_ bytes: Span<UInt8>) -> ParseOutcome {
        var consumed = 0
        while true {
            let outcome = handle.parse(bytes.extracting(consumed..<bytes.count))
            guard case .complete(let count) = outcome else { return outcome }
            consumed += count
            guard unsafe handle.machine.pointee.isInterim else { return .complete(consumed: consumed) }
            _ = unsafe handle.machine.pointee.takeMessage()
        }
    }

    /// The stream ended: an answer without a length is complete with it, any other one failed.
    public func finish() -> ParseOutcome { handle.finish() }

    public func takeMessage() -> Message { unsafe handle.machine.pointee.takeMessage() }
}
