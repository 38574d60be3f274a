import HTTP1
import HTTP2

/// The HTTP/2 side of a connection: its session, and its requests that are on their way.
final class StreamTable {
    enum Phase {
        /// The request is coming.
        case receiving
        /// The handler has it.
        case answering
        /// The answer goes out as fast as the peer's windows let it.
        case sending
    }

    struct Stream {
        /// What a stream holds beside its bytes, nearly all of it nghttp2's.
        static let cost = 4_096

        /// Nil once the request is whole, or refused.
        var builder: MessageBuilder?
        var phase = Phase.receiving
        /// When the phase began.
        var sinceMs: UInt64
        var isHead: Bool
        /// Of the answer's body, which waits until the peer takes it.
        var answerBytes = 0
    }

    let session: HTTP2Session
    var streams: [Int32: Stream] = [:]
    /// When the header block began that has not ended yet.
    var blockSinceMs: UInt64?

    init(_ session: HTTP2Session) { self.session = session }

    /// Whether a request has begun since a drain last looked.
    var hasBegun = false

    var isAnswering: Bool { streams.values.contains { $0.phase != .receiving } }
    var isBusy: Bool { !streams.isEmpty || blockSinceMs != nil }
}
