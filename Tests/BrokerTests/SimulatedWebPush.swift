import HTTP1
import HTTP2
import Sealing
import Synchronization
import TLS
import Vocabulary

@testable import Courier
@testable import WebPush

/// The Web Push services of a story, and all of its browsers. The courier's own code writes the requests and reads the answers. Only its connections
/// and queues are left out.
final class SimulatedWebPush: Sendable {
    /// A request, as the service and the browser read it.
    struct Message: Sendable {
        let push: Push
        /// The number of the process that sends it.
        let process: Int
        /// The bytes that the subscription was made of.
        let id: [UInt8]
        /// True for a browser maker's service.
        let isLarge: Bool
        let ttlS: UInt64
        let topic: String?
        /// The text that the browser shows, decrypted.
        let text: [UInt8]
    }

    enum Reply: Sendable {
        /// The connection broke before an answer.
        case lost
        /// Further fields end with a line's end.
        case status(Int, fields: String = "")

        var isTaken: Bool { if case .status(200...299, "") = self { true } else { false } }

        /// True if the message may be sent again.
        var isRetryable: Bool {
            switch self {
            case .lost, .status(406, _), .status(429, _), .status(500...599, _): true
            default: false
            }
        }
    }

    let settings: WebPushService
    private let browser: ECDHKey
    /// The `p256dh` of all subscriptions.
    let point: [UInt8]
    /// Returns the answer to a message, and after how long it comes.
    private let answer: @Sendable (Message) -> (afterMs: UInt64, Reply)

    static let hosts = ["updates.push.services.mozilla.com", "wns2-a.notify.windows.com", "push.example", "ntfy.example"]

    init(answer: @escaping @Sendable (Message) -> (afterMs: UInt64, Reply)) throws {
        settings = WebPushService(
            keys: [try VAPIDKey(ES256.PrivateKey())], contact: "mailto:ops@chat.example", origin: "https://app.example",
            hosts: .public)
        browser = try ECDHKey()
        point = browser.point
        self.answer = answer
    }

    /// One process's courier: its answers and refusals so far.
    final class Process: Sendable {
        private let services: SimulatedWebPush
        private let number: Int
        private let adapter: WebPushAdapter
        private let breakers = Mutex<[String: PurgeBreaker]>([:])
        /// Draws the waits between attempts.
        private let chance: Chance
        private let clocks: Clocks

        struct Clocks: Sendable {
            var broker: @Sendable () -> UInt64
            var wall: @Sendable () -> UInt64
            var monotonic: @Sendable () -> UInt64
        }

        init(_ services: SimulatedWebPush, number: Int = 0, _ chance: Chance, _ clocks: Clocks) {
            (self.services, self.number, self.chance, self.clocks) = (services, number, chance, clocks)
            adapter = WebPushAdapter(hasTwoKeys: false, clock: clocks.broker)
        }

        /// A push and its attempts so far.
        struct Attempts {
            let push: Push
            fileprivate var history = History()
            /// How it ends if its deadline comes now.
            fileprivate(set) var late = Outcome.failed(status: 0, reason: .late, verdict: .keep)

            init(push: Push) { self.push = push }
        }

        enum Next {
            case end(Outcome)
            case again(afterMs: UInt64)
        }

        /// Sends a message once.
        /// - Returns: after how long its answer comes, and what follows from that.
        func attempt(_ attempts: inout Attempts) async -> (afterMs: UInt64, Next) {
            guard let endpoint = Subscription(attempts.push.address.token)?.endpoint else {
                return (0, .end(.failed(status: 0, reason: .other, verdict: .keep)))
            }
            var found: (afterMs: UInt64, Step) = (0, .retry(Retry()))
            var history = attempts.history
            _ = await withCheckedContinuation { continuation in
                let delivery = Delivery(attempts.push, Topic("Web Push"), deadline: .max, traced: false, continuation)
                do { found = try exchange(delivery, endpoint, &history, &attempts.late) } catch {
                    preconditionFailure("\(error)")
                }
                delivery.finish(.delivered)
            }
            attempts.history = history
            guard case .retry(let retry) = found.1 else {
                guard case .finish(let outcome) = found.1 else { preconditionFailure("a step is one of both") }
                return (found.afterMs, .end(outcome))
            }
            attempts.history.failures += 1
            var generator = Draws(chance: chance)
            let timing = Timing.webPush
            let delay = timing.retry.delayMs(
                attempts.history.failures, leastMs: min(retry.leastMs, timing.longestWaitMs), using: &generator)
            return (found.afterMs, .again(afterMs: delay))
        }

        private func exchange(
            _ delivery: Delivery, _ endpoint: PushEndpoint, _ history: inout History, _ late: inout Outcome
        ) throws -> (afterMs: UInt64, Step) {
            let isLarge = BrowserMaker(host: endpoint.host) != nil
            let session = HTTP1ClientSession(bodyBytes: 16_384)
            let writer = adapter.requestWriter(to: Endpoint(host: endpoint.host, port: endpoint.port))
            _ = try writer.submit(delivery, nil, to: .http1(session))
            var request: [UInt8] = []
            session.takeOutbound(into: &request)
            _ = session.takeEvents()
            let push = delivery.push
            let attempt = Attempt(startedAt: clocks.monotonic(), startedAtWallMs: clocks.wall(), authorization: nil)
            let (wait, reply) = services.answer(try services.read(request, of: push, number, isLarge: isLarge))
            guard case .status(let status, let fields) = reply else {
                late = .failed(status: 0, reason: .unknown, verdict: .keep)
                return (wait, .retry(Retry()))
            }
            let response = Array("HTTP/1.1 \(status) \r\n\(fields)content-length: 0\r\n\r\n".utf8)
            try session.receive(response.span)
            var flight = Flight(delivery: delivery, attempt: attempt)
            for case .headers(_, let headers) in session.takeEvents() {
                (flight.status, flight.retryAfter) = (headers.status, headers["retry-after"])
                flight.remark = adapter.remarkField.flatMap { headers[$0] }
            }
            guard let read = flight.status else { throw HTTP2Error.badMessage }
            let answer = adapter.answer(flight, status: read, nowMs: attempt.startedAtWallMs + wait)
            let now = attempt.startedAt
            let key = delivery.tokenKey
            let breaker = breakers.withLock { $0[endpoint.origin, default: PurgeBreaker()].state(after: answer, of: key, now) }
            let step = answer.step(&history, sealedAtMs: push.sealedAtMs, sentAtMs: attempt.startedAtWallMs, breaker: breaker)
            late = .failed(status: answer.status, reason: answer.reason, verdict: .keep)
            return (wait, step)
        }
    }

    /// Reads a request as its receivers do.
    private func read(_ request: [UInt8], of push: Push, _ process: Int, isLarge: Bool) throws -> Message {
        var limits = MessageLimits(bodyBytes: 4_096)
        limits.allowsContentEncoding = true
        let parser = RequestParser(limits: limits)
        guard case .complete(request.count) = parser.parse(request.span) else { throw HTTP2Error.badMessage }
        let message = parser.takeMessage()
        let body = message.withBody { body in body.indices.map { body[$0] } }
        let target = message.withTarget { target in target.indices.map { target[$0] } }
        let digits = String(decoding: target.dropFirst(), as: UTF8.self)
        guard let ttl = message.header("ttl").flatMap({ UInt64($0) }), let id = Hex.decode(digits) else {
            throw HTTP2Error.badMessage
        }
        let auth = Array(id.prefix(MessageEncryption.authCount))
        guard let text = try MessageEncryption.decrypt(body, with: browser, auth: auth.span) else { throw HTTP2Error.badMessage }
        return Message(
            push: push, process: process, id: id, isLarge: isLarge, ttlS: ttl, topic: message.header("topic"), text: text)
    }
}

/// The last attempt of a Web Push.
struct WebPushAttempt {
    // Not the whole message: its address would keep a slot of locked memory.
    private let topic: String?
    private let text: [UInt8]
    let reply: SimulatedWebPush.Reply
    let run: Int
    let at: UInt64

    init(_ message: SimulatedWebPush.Message, _ reply: SimulatedWebPush.Reply, run: Int, at: UInt64) {
        (topic, text) = (message.topic, message.text)
        (self.reply, self.run, self.at) = (reply, run, at)
    }

    /// Returns why `next` must not follow this attempt. Nil if it may.
    func fault(ofRepeat next: WebPushAttempt) -> String? {
        guard reply.isRetryable else { return "is repeated after \(reply)" }
        // Another topic would show it twice.
        guard topic == next.topic, topic != nil, text == next.text else {
            return "is repeated under another topic, or with another text"
        }
        return nil
    }
}

/// Subscriptions that a service has answered 404 since it last answered otherwise.
struct MissingSubscriptions {
    private var since: [[UInt8]: UInt64] = [:]

    func has(_ message: SimulatedWebPush.Message) -> Bool { since[message.id] != nil }

    /// True if this answer may end the subscription. A foreign service's 404 does so if it comes again an hour later.
    mutating func mayPurge(_ message: SimulatedWebPush.Message, after reply: SimulatedWebPush.Reply, now: UInt64) -> Bool {
        switch reply {
        case .lost: return false
        case .status(404, _):
            let first = since[message.id] ?? now
            since[message.id] = first
            return message.isLarge || first + 3_600_000 <= now
        case .status(let status, _):
            since[message.id] = nil
            return status == 410
        }
    }
}

extension PurgeBreaker {
    /// Counts an answer as `Lane` does.
    fileprivate mutating func state(after answer: PushAnswer, of token: Int, _ nowMs: UInt64) -> State {
        let isRefusal = answer.status != 200 && answer.reaction == .purge
        if answer.status == 200 {
            record(.taken, nowMs: nowMs)
        } else if isRefusal {
            record(.refused(token), nowMs: nowMs)
        } else if answer.reaction == .purgeIfOlder {
            record(.gone, nowMs: nowMs)
        }
        return isRefusal ? state(nowMs: nowMs) : .closed
    }
}

/// Not the breaker's own type of that name.
private typealias PushAnswer = Answer

private struct Draws: RandomNumberGenerator {
    let chance: Chance
    mutating func next() -> UInt64 { chance.next() }
}
