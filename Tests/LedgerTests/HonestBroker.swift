@testable import Ledger

/// Plays a broker that keeps every rule, at its own pace and with crashes, and writes down what its ledger would hold.
struct HonestBroker {
    /// Seconds, as all times here.
    let resolution: UInt64
    private var random: SeededGenerator
    private var events: [(time: UInt64, op: Entry.Op)] = []
    private var spans: [Range<UInt64>] = []

    static let start: UInt64 = 1_767_225_600
    static let policy = bytes("{\"name\":\"rooms\"}")

    /// The entries of a story of a few hours, in the log's order.
    static func story(seed: UInt64, resolution: UInt64, tokens: Int = 60) -> [Entry] {
        var broker = HonestBroker(resolution: resolution, random: SeededGenerator(seed: seed))
        broker.run()
        for _ in 0..<tokens { broker.liveToken() }
        return broker.entries
    }

    private init(resolution: UInt64, random: SeededGenerator) { (self.resolution, self.random) = (resolution, random) }

    private var entries: [Entry] {
        let stamped = events.enumerated().map { number, event in
            (number, Entry(atMs: event.time / resolution * resolution * 1000, event.op), event.time)
        }
        return stamped.sorted { left, right in
            if left.1.atMs != right.1.atMs { return left.1.atMs < right.1.atMs }
            if left.1.sortKey != right.1.sortKey { return left.1.sortKey.lexicographicallyPrecedes(right.1.sortKey) }
            return (left.2, left.0) < (right.2, right.0)
        }.map(\.1)
    }

    private mutating func pick(_ range: ClosedRange<UInt64>) -> UInt64 { UInt64.random(in: range, using: &random) }

    private mutating func id() -> OpaqueID { OpaqueID(UInt128.random(in: .min ... .max, using: &random)) }

    /// Lays out when the broker runs, and what it does of itself.
    private mutating func run() {
        var time = Self.start + pick(0...900)
        for _ in 0..<pick(1...4) {
            let span = time..<time + pick(400...6000)
            spans.append(span)
            let node = EntryText("node-1")!
            let policy = sha256(Self.policy)
            let version = EntryText("1.0")!
            events.append(
                (time, .brokerStarted(node: node, version: version, policy: policy, resolutionSeconds: UInt32(resolution))))
            events.append((time, .policyLoaded(name: EntryText("rooms")!, policy: policy)))
            ratchet(in: span)
            if pick(0...1) == 0 { events.append((span.upperBound, .brokerStopped(node: node))) }
            time = span.upperBound + pick(1...5000)
        }
    }

    private mutating func ratchet(in span: Range<UInt64>) {
        let first = span.lowerBound + pick(0...120)
        events.append((first, .keysRatcheted(epoch: first / 300 - 2)))
        var boundary = (first / 300 + 1) * 300
        while boundary + 120 < span.upperBound {
            // Now and then the ratchet is held for an epoch.
            if pick(0...5) == 0, boundary + 720 < span.upperBound { boundary += 300 }
            let time = boundary + (pick(0...3) == 0 ? 120 : pick(0...120))
            events.append((time, .keysRatcheted(epoch: time / 300 - 2)))
            boundary += 300
        }
    }

    private mutating func liveToken() {
        let span = spans.randomElement(using: &random)!
        let ref = id()
        let sealed = pick(span.lowerBound...span.upperBound - 1)
        let expiry = sealed + pick(10...5000)
        let until = (expiry / 300 + 1) * 300
        events.append((sealed, .tokenSealed(ref: ref, kind: .alert, untilMs: until * 1000)))
        let purged = purge(expiry: expiry, until: until)
        let deleted = pick(0...3) == 0 ? pick(sealed...min(expiry, span.upperBound) - 1) : nil
        let end = min(deleted ?? .max, purged ?? .max)
        for _ in 0..<pick(0...2) {
            let lastMoment = min(end, expiry, span.upperBound) - 1
            guard sealed < lastMoment else { break }
            let (job, opened) = (id(), pick(sealed...lastMoment))
            events.append((opened, .tokenOpened(ref: ref, job: job, template: EntryText("rooms.waiting")!)))
            let answered = opened + pick(0...120)
            if answered < span.upperBound {
                events.append(
                    (
                        answered,
                        pick(0...1) == 0
                            ? .pushDelivered(ref: ref, job: job, status: 200)
                            : .pushFailed(ref: ref, job: job, status: 410, reason: .unregistered)
                    ))
            } else if let next = spans.first(where: { $0.lowerBound > opened }) {
                events.append((next.lowerBound, .pushFailed(ref: ref, job: job, status: 0, reason: .unknown)))
            }
        }
        if let deleted, deleted <= end {
            events.append((deleted, .tokenPurged(ref: ref, cause: .deleted)))
        } else if let purged {
            events.append((purged, .tokenPurged(ref: ref, cause: .expired)))
        }
    }

    /// When the sweeper gets to it: by 2 minutes after `until`, or that long after the next start; nil if the story ends before.
    private mutating func purge(expiry: UInt64, until: UInt64) -> UInt64? {
        if let span = spans.first(where: { $0.contains(expiry) }) {
            if until + 120 < span.upperBound { return pick(0...2) == 0 ? until + 120 : pick(expiry...until + 120) }
            if until <= span.upperBound { return expiry }
        }
        guard let next = spans.first(where: { $0.lowerBound > expiry }) else { return nil }
        return next.lowerBound + pick(0...120)
    }
}
