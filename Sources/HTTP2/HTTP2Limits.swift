/// Bounds on what a peer can make a session hold or do.
public struct HTTP2Limits: Sendable {
    /// Names, values and 32 bytes a field (RFC 9113, 6.5.2), of one header block.
    public var headerListBytes = 16 * 1024
    public var headerFields = 100
    /// Of one message.
    public var bodyBytes: Int
    /// Streams the peer may have open.
    public var concurrentStreams: UInt32
    /// Streams that came to nothing (reset by either end before the answer was complete) minus those that were answered.
    public var wastedStreams = 200
    /// Frames other than HEADERS and DATA with nothing but content, between two complete requests.
    public var controlFrames = 10_000
    /// All bytes received between two complete requests: bounds the frames that are passed over in silence (of unknown kinds, on closed
    /// streams). To be more than all open streams' requests may have together.
    public var bytesBetweenRequests = 8 << 20

    /// HPACK's memory of the peer's fields, which may be capabilities; 0: nothing of a request outlives it there.
    public var headerTableBytes: UInt32 = 4096

    public init(bodyBytes: Int, concurrentStreams: UInt32 = 128) {
        self.bodyBytes = bodyBytes
        self.concurrentStreams = concurrentStreams
    }
}
