import HTTP1
import Shares

/// One request over HTTP/2 and its answer, and what they are charged.
///
/// It may outlive its connection: a handler that has the request keeps its charges until it answers.
final class HTTP2Stream {
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

    /// What a stream holds beside its bytes, nearly all of it nghttp2's.
    static let cost = 4_096
    /// An answer is charged as its request was if their sizes differ by less. Most do, and each change of a charge costs time.
    static let slack = 1_024

    let number: Int32
    let isHead: Bool
    /// Nil once the request is whole, or refused.
    var builder: MessageBuilder?
    var phase = Phase.receiving
    /// When the phase began.
    var sinceMs: UInt64
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

    init(_ number: Int32, isHead: Bool, sinceMs: UInt64) {
        self.number = number
        self.isHead = isHead
        self.sinceMs = sinceMs
    }

    /// Begins to send the answer.
    func send(nowMs: UInt64) {
        phase = .sending
        sinceMs = nowMs
        stalledSinceMs = nowMs
    }

    func refund(_ shares: Shares) {
        if let bytes = bytes.take() { shares.refund(bytes) }
        if let place = place.take() { shares.refund(place) }
    }
}
