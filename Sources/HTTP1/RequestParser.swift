/// Reads the requests of one connection (RFC 9112), one after the other, with no I/O. After `.complete`, `takeMessage()` before the bytes that follow.
public final class RequestParser {
    let handle: ParserHandle

    public init(limits: MessageLimits = MessageLimits()) {
        handle = ParserHandle(isServer: true, limits: limits)
    }

    public var phase: ParsePhase { unsafe handle.machine.pointee.phase }

    /// Whether the sender waits for `100 Continue` before it sends the body, of which nothing has come yet.
    public var awaitsContinue: Bool { unsafe handle.machine.pointee.awaitsContinue }

    public func parse(_ bytes: Span<UInt8>) -> ParseOutcome { handle.parse(bytes) }

    /// Zeroes what has come of a message that is waited for no longer; the parser takes no more bytes.
    public func abandon() { _ = unsafe handle.machine.pointee.fail() }

    /// The message that `.complete` announced.
    public func takeMessage() -> Message { unsafe handle.machine.pointee.takeMessage() }
}
