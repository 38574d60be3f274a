import HTTP1
import HTTP2
import Shares

/// The HTTP/2 side of a connection: its session, and its requests that are on their way.
final class StreamTable {
    enum Phase {
        /// The request is coming.
        case receiving
        /// The handler has it.
        case answering
        /// The stream is over, and the handler still has its request.
        case abandoned
        /// The answer goes out as fast as the peer's windows let it.
        case sending
    }

    /// A class: it is larger than a dictionary should move about at each change.
    final class Stream {
        /// What a stream holds beside its bytes, nearly all of it nghttp2's.
        static let cost = 4_096
        /// An answer is charged as its request was if their sizes differ by less. Most do, and each change of a charge costs time.
        static let slack = 1_024

        /// Nil once the request is whole, or refused.
        var builder: MessageBuilder?
        var phase = Phase.receiving
        /// When the phase began.
        var sinceMs: UInt64
        let isHead: Bool
        /// Nil for one that is refused because it can't be charged.
        var place: Charge?
        /// `cost`, the request until it is answered, and then the answer's body until the peer has taken it.
        var bytes: Charge?
        /// Of `bytes`, what the request has.
        var requestBytes = 0
        /// The request, while it waits for the loop's next turn.
        var waiting: HTTPRequest?
        /// Bytes of the answer that were sent when it was last looked at, and since when there have been no more.
        var sent = 0
        var stalledSinceMs: UInt64 = 0

        init(sinceMs: UInt64, isHead: Bool) { (self.sinceMs, self.isHead) = (sinceMs, isHead) }
    }

    /// Answers that are not charged, because their owner is over its share. A peer that doesn't read them loses its connection.
    static let mostUncharged = 4
    var uncharged = 0
    /// Nothing is taken from the peer any more.
    var isEnding = false

    let session: HTTP2Session
    var streams: [Int32: Stream] = [:]
    /// When the header block began that has not ended yet.
    var blockSinceMs: UInt64?

    init(_ session: HTTP2Session) { self.session = session }

    /// Whether a request has begun since a drain last looked.
    var hasBegun = false

    var isAnswering: Bool { streams.values.contains { $0.phase == .answering || $0.phase == .sending } }
    var isBusy: Bool { !streams.isEmpty || blockSinceMs != nil }
}
