/// What happened on a session, in the order it happened.
public enum HTTP2Event: Sendable, Equatable {
    public enum Part: Sendable { case headers, body }

    /// A request or a final response; trailers and 1xx responses are swallowed.
    case headers(stream: Int32, HTTP2Headers)
    case data(stream: Int32, HTTP2Data)
    /// The peer has sent all of its message.
    case end(stream: Int32)
    /// The peer's message is larger than the session's limits; the rest of it is dropped. A server answers 431 or 413.
    case tooLarge(stream: Int32, Part)
    /// The stream is over; nothing more is heard of it. `refusedStream`: the peer has not looked at it, so that it may be sent again.
    case closed(stream: Int32, HTTP2ErrorCode)
    /// The peer's settings have come and hold.
    case settings
    /// The peer takes no more streams; those above `lastStream` follow as `closed` with `refusedStream`.
    case goAway(lastStream: Int32, HTTP2ErrorCode, debugData: [UInt8])
    case pingAcknowledged(UInt64)
}

/// Error codes of RFC 9113, 7.
public struct HTTP2ErrorCode: RawRepresentable, Sendable, Hashable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let noError = HTTP2ErrorCode(rawValue: 0)
    public static let protocolError = HTTP2ErrorCode(rawValue: 1)
    public static let internalError = HTTP2ErrorCode(rawValue: 2)
    public static let flowControlError = HTTP2ErrorCode(rawValue: 3)
    public static let refusedStream = HTTP2ErrorCode(rawValue: 7)
    public static let cancel = HTTP2ErrorCode(rawValue: 8)
    public static let compressionError = HTTP2ErrorCode(rawValue: 9)
    public static let enhanceYourCalm = HTTP2ErrorCode(rawValue: 11)
}

/// Why a session can't go on; what is left to send (a GOAWAY) should still be sent.
public enum HTTP2Error: Error, Sendable, Equatable {
    /// The peer does not speak HTTP/2.
    case notHTTP2
    /// The peer makes work without taking the answers.
    case flooded
    /// The stream is unknown, or has ended.
    case noSuchStream
    /// The session takes no more requests (GOAWAY, or stream ids are used up).
    case noMoreStreams
    /// A header block or setting that nghttp2 refuses.
    case badMessage
    case outOfMemory
}
