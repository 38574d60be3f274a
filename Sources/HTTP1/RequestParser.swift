/// Reads the requests of one connection (RFC 9112), one after the other, with no I/O. After `.complete`, `takeMessage()` before the bytes that follow.
public final class RequestParser {
    private let handle: ParserHandle

    public init(limits: MessageLimits = MessageLimits()) {
        handle = ParserHandle(isServer: true, limits: limits)
    }

    public var phase: ParsePhase { unsafe handle.machine.pointee.phase }

    /// Whether the sender waits for `100 Continue` before it sends the body, of which nothing has come yet.
    public var awaitsContinue: Bool { unsafe handle.machine.pointee.awaitsContinue }

    public func parse(_ bytes: Span<UInt8>) -> ParseOutcome { handle.parse(bytes) }

    /// The message that `.complete` announced.
    public func takeMessage() -> Message { unsafe handle.machine.pointee.takeMessage() }
}
