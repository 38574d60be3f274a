public import EventLoop
import Linux
public import Sealing
import Shares
import Sodium
import Synchronization
import Vocabulary

/// The other nodes of a deployment that serve, and the messages to and from them.
///
/// Messages of two milliseconds go out together, sealed under the epoch key of their expiry. So the server learns only their number and size, and can't make
/// one up. It can repeat one until the expiry. A node that is silent for the length of a lease counts as gone.
public final class Neighbors: Sendable {
    private struct State {
        var waiting: [[UInt8]] = []
        /// When each other node was last heard, on the loop's clock.
        var heard: [UInt64: UInt64] = [:]
        /// The number of each node's last payload, and when it came, on the loop's clock.
        var last: [UInt64: (number: UInt64, at: UInt64)] = [:]
        /// The number of this node's last payload.
        var sent: UInt64 = 0
        /// When a message of this node last came back to it.
        var echo: UInt64 = 0
    }

    /// The parts of this node that act on messages of other nodes.
    public struct Receivers: Sendable {
        let presence: Presence
        let rooms: Rooms?
        let companion: Companion?

        public init(_ broker: Broker, _ companion: Companion?) { self.init(broker.presence, broker.rooms, companion) }

        init(_ presence: Presence, _ rooms: Rooms? = nil, _ companion: Companion? = nil) {
            (self.presence, self.rooms, self.companion) = (presence, rooms, companion)
        }
    }

    private let loop: EventLoop
    private let keys: KeyRing
    private let time: BrokerTime
    private let shares: Shares
    private let send: @Sendable (String) -> Void
    /// Identifies this process.
    let node = UInt64.random(in: 1 ... .max)
    private let state = Mutex(State())

    /// After a longer time without an echo this node is deaf: it hears nobody, although others may be alive.
    private static let longestEchoMs = 2 * pulseMs
    private static let delayMs: UInt64 = 2
    static let pulseMs: UInt64 = 3_000
    /// A node that is silent for longer counts as gone. Must be as long as a lease of the store.
    static let silenceMs: UInt64 = 10_000
    /// From sending to expiry. Each node's clock is within a minute of the database's, so two clocks may differ by all of it.
    private static let lifeMs: UInt64 = 180_000
    /// How much the clocks of two nodes may differ. Each is within a minute of the database's.
    static let largestDifferenceMs: UInt64 = 120_000
    /// Sealed messages are padded to a multiple of this.
    private static let block = 256
    /// Bytes of messages that fit into one payload of PostgreSQL.
    private static let mostBytes = 5_600

    /// - Parameters:
    ///   - shares: the quotas of all callers, as at the broker. They shrink while other nodes serve.
    ///   - send: sends a text to all nodes, also to this one. The text may be lost.
    public init(loop: EventLoop, keys: KeyRing, time: BrokerTime, shares: Shares, send: @escaping @Sendable (String) -> Void) {
        (self.loop, self.keys, self.time, self.shares, self.send) = (loop, keys, time, shares, send)
    }

    /// How many other nodes serve.
    public var count: Int { state.withLock(\.heard.count) }

    /// True if messages don't reach this node, e.g. while the database is away.
    var isDeaf: Bool { state.withLock { loop.now - min(loop.now, $0.echo) > Self.longestEchoMs } }

    /// A caller may come to any node. So each node grants an equal part of what lasts for minutes.
    private func divideShares() {
        shares.divide([.creations, .tokenReplacements, .shortCreations, .shortCodes], by: 1 + count)
    }

    // MARK: Sending

    /// Says hello, then repeats who is present here, until the task is cancelled.
    public func run(_ receivers: Receivers) async {
        greet()
        while !Task.isCancelled {
            do { try await loop.sleep(Self.pulseMs) } catch { return }
            loop.submit { self.pulse(receivers.presence) }
        }
    }

    /// Asks all nodes who is present there. Call it whenever messages may have been missed.
    public func greet() { loop.submit { self.post(.hello, always: true) } }

    private func pulse(_ presence: Presence) {
        let now = loop.now
        let isDeaf = isDeaf
        let silent = state.withLock { state in
            // Others may be alive: only this node hears nothing.
            if isDeaf { state.heard = state.heard.mapValues { _ in now } }
            let silent = state.heard.filter { now - $0.value >= Self.silenceMs }.map(\.key)
            for node in silent { state.heard[node] = nil }
            // Nothing of theirs can be opened any more.
            state.last = state.last.filter { now - $0.value.at < 3 * Self.lifeMs }
            return silent
        }
        if !silent.isEmpty { divideShares() }
        presence.assumeIsolated { presence in
            for node in silent { presence.forget(node: node) }
            if isDeaf { presence.believeAll() } else { presence.forgetUnrepeated(before: now - min(now, Self.silenceMs)) }
            presence.repeatPresence()
        }
        post(.pulse, always: true)
    }

    /// Sends a message to all other nodes, if there are any. Must be called on the loop.
    func post(_ message: NodeMessage, always: Bool = false) {
        let isFirst: Bool? = state.withLock { state in
            if state.heard.isEmpty, !always { return nil }
            state.waiting.append(message.encoded)
            return state.waiting.count == 1
        }
        if isFirst == true { loop.after(Self.delayMs) { self.flush() } }
    }

    private func flush() {
        var waiting = state.withLock { state in
            defer { state.waiting = [] }
            return state.waiting
        }[...]
        while !waiting.isEmpty {
            let number = state.withLock { state in
                state.sent += 1
                return state.sent
            }
            var bytes = [UInt8](bigEndian: node) + [UInt8](bigEndian: number)
            while let next = waiting.first, bytes.count + next.count <= Self.mostBytes {
                bytes += next
                waiting.removeFirst()
            }
            if let text = seal(bytes) { send(text) }
        }
    }

    /// `generation u32be || expiry u64be || note`, in base64url. Returns nil without a free slot for the key: a lost message.
    private func seal(_ bytes: [UInt8]) -> String? {
        let slot = ExpirySlot(generation: keys.currentGeneration, expiryMs: time.now + Self.lifeMs)
        guard let note = try? keys.sealNote(bytes, .nodes, slot, [], block: Self.block) else { return nil }
        return Base64.url.encode(([UInt8](bigEndian: slot.generation) + [UInt8](bigEndian: slot.expiryMs) + note).span)
    }

    // MARK: Receiving

    /// Handles a text from any node. May be called on any thread. Ignores a malformed or expired one.
    public func receive(_ text: String, for receivers: Receivers) {
        guard let (node, number, messages) = open(text) else { return }
        loop.submit {
            guard self.isNew(number, from: node) else { return }
            if node == self.node {
                self.state.withLock { $0.echo = self.loop.now }
            } else {
                self.handle(messages, from: node, receivers)
            }
        }
    }

    /// False for a payload that was sent again, by whoever controls the server.
    private func isNew(_ number: UInt64, from node: UInt64) -> Bool {
        state.withLock { state in
            if let last = state.last[node], number <= last.number { return false }
            state.last[node] = (number, loop.now)
            return true
        }
    }

    private func open(_ text: String) -> (node: UInt64, number: UInt64, messages: [NodeMessage])? {
        var bytes = [UInt8](repeating: 0, count: text.utf8.count)
        var span = bytes.mutableSpan
        guard let count = Base64.url.decode(Array(text.utf8).span, into: &span), count > 12 else { return nil }
        let slot = ExpirySlot(generation: bytes.span.bigEndian32(at: 0), expiryMs: bytes.span.bigEndian64(at: 4))
        let now = time.now
        guard slot.expiryMs > now, slot.expiryMs - now <= 2 * Self.lifeMs,
            let opened = try? keys.openNote(bytes[12..<count].span, .nodes, slot, [], block: Self.block), opened.count >= 16
        else { return nil }
        var rest = opened[16...]
        var messages: [NodeMessage] = []
        while !rest.isEmpty {
            // A newer version may send more kinds.
            guard let message = NodeMessage(&rest) else { break }
            messages.append(message)
        }
        return (opened.span.bigEndian64(at: 0), opened.span.bigEndian64(at: 8), messages)
    }

    private func handle(_ messages: [NodeMessage], from node: UInt64, _ receivers: Receivers) {
        let (presence, rooms, outbox) = (receivers.presence, receivers.rooms, receivers.rooms?.outbox)
        let isNew = state.withLock { $0.heard.updateValue(loop.now, forKey: node) == nil }
        if isNew { divideShares() }
        if isNew || messages.contains(.hello) {
            post(.pulse)
            presence.assumeIsolated { $0.repeatPresence() }
        }
        for message in messages {
            switch message {
            case .hello, .pulse: break
            case .revoked(let token): outbox?.assumeIsolated { $0.revokeHere([token]) }
            case .renewed(let token): outbox?.assumeIsolated { $0.renewHere([token]) }
            case .news(let receiver, let news):
                if let request = news.ended { outbox?.assumeIsolated { $0.settle(request) } }
                guard let companion = receivers.companion else { break }
                Task(executorPreference: loop) { await companion.sockets.send(news, to: receiver) }
            default:
                rooms?.assumeIsolated { $0.hear(message) }
                presence.assumeIsolated { $0.hear(message, from: node) }
            }
        }
    }
}
