/// What a parser made of the bytes it was given.
public enum ParseOutcome: Sendable, Equatable {
    /// All bytes were taken and the message goes on.
    case incomplete
    /// The message ended after `consumed` of the bytes; `takeMessage()` hands it over. What follows belongs to the next message.
    case complete(consumed: Int)
    /// The message is refused; the parser takes no more bytes.
    case failed(ParseFailure)
}

/// How far a message has come: what its deadline depends on.
public enum ParsePhase: Sendable, Equatable {
    /// No byte of a message yet.
    case idle
    case head
    case body
    case complete
    case failed
}
