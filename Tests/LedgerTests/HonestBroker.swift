import Policy
import Vocabulary

@testable import Ledger

/// Simulates a broker that follows every rule, with stops and pauses, and returns its ledger. All times are unix seconds.
struct HonestBroker {
    struct Setting {
        var resolution: UInt64 = 60
        var hour: UInt64 = 3_600
        var day: UInt64 = 86_400
        var seals = 64
        var tokens = 400
        var days: UInt64 = 3
        /// The number of starts.
        var starts = 3

        /// The policy with this timing.
        var policy: [UInt8] {
            bytes(
                #"{"ledger":{"batchSeals":\#(seals),"daySeconds":\#(day),"hourSeconds":\#(hour)},"#
                    + #""limits":{"roomLifeSeconds":{"max":604800}},"templates":{"peer_waiting":{}}}"#)
        }
    }

    private struct Token {
        let ref: Ref
        let sealed: UInt64
        let expiry: UInt64
        let until: UInt64
        /// The time of the purge. Nil if the story ends earlier.
        var purged: UInt64?
        var isEnded = false
        var isSealPublished = false
        var isPurgePublished = false

        var isLong: Bool { expiry - sealed > 86_400 }
    }

    /// 2026-01-01T00:00:00Z.
    static let start: UInt64 = 1_767_225_600
    static let node = EntryText("node-1")!
    static let template = EntryText("peer_waiting")!

    private let setting: Setting
    private var random: SeededGenerator
    private var events: [(time: UInt64, op: Entry.Op)] = []
    private var spans: [Range<UInt64>] = []
    private var tokens: [Token] = []

    /// The entries of a story, in the log's order.
    static func story(seed: UInt64 = 11, _ setting: Setting = Setting()) -> [Entry] {
        var broker = HonestBroker(setting: setting, random: SeededGenerator(seed: seed))
        broker.layOut()
        for _ in 0..<setting.tokens { broker.liveToken() }
        for span in broker.spans { broker.ratchet(in: span) }
        broker.publish()
        return broker.entries
    }

    /// The refs of a story's tokens.
    static func refs(seed: UInt64 = 11, _ setting: Setting = Setting()) -> [Ref] {
        var broker = HonestBroker(setting: setting, random: SeededGenerator(seed: seed))
        broker.layOut()
        for _ in 0..<setting.tokens { broker.liveToken() }
        return broker.tokens.map(\.ref)
    }

    private init(setting: Setting, random: SeededGenerator) { (self.setting, self.random) = (setting, random) }

    private var entries: [Entry] {
        let stamped = events.enumerated().map {
            (number: $0, entry: Entry(atMs: $1.time / setting.resolution * setting.resolution * 1_000, $1.op), time: $1.time)
        }
        return stamped.sorted { left, right in
            if left.entry.atMs != right.entry.atMs { return left.entry.atMs < right.entry.atMs }
            let (one, other) = (left.entry.op, right.entry.op)
            if one.rank != other.rank { return one.rank < other.rank }
            if one.sortKey != other.sortKey { return one.sortKey.lexicographicallyPrecedes(other.sortKey) }
            return (left.time, left.number) < (right.time, right.number)
        }.map(\.entry)
    }

    private mutating func pick(_ range: ClosedRange<UInt64>) -> UInt64 { UInt64.random(in: range, using: &random) }

    private mutating func id<ID: OpaqueID>() -> ID { ID(UInt128.random(in: .min ... .max, using: &random)) }

    /// Chooses the times at which the broker runs.
    private mutating func layOut() {
        let policy = sha256(setting.policy)
        var time = Self.start + pick(0...900)
        let end = time + setting.days * setting.day
        for number in 0..<setting.starts {
            let stop = number + 1 == setting.starts ? end : time + (end - time) / UInt64(setting.starts - number)
            spans.append(time..<stop)
            events.append(
                (
                    time,
                    .brokerStarted(
                        node: Self.node, version: EntryText("1.0")!, policy: policy,
                        resolutionSeconds: UInt32(setting.resolution), binary: policy)
                ))
            events.append((time, .policyLoaded(name: EntryText("rooms")!, policy: policy)))
            if pick(0...1) == 0 { events.append((stop, .brokerStopped(node: Self.node))) }
            time = stop + pick(setting.resolution...max(setting.resolution, 1_000))
        }
    }

    private mutating func liveToken() {
        let span = spans.randomElement(using: &random)!
        let (ref, sealed) = (id() as Ref, pick(span.lowerBound...span.upperBound - 1))
        let life = pick(0...9) == 0 ? pick(86_400...604_800) : pick(10...setting.day)
        let expiry = sealed + life
        var token = Token(ref: ref, sealed: sealed, expiry: expiry, until: (expiry / setting.day + 1) * setting.day)
        if pick(0...2) == 0, case let last = min(expiry, span.upperBound) - 1, sealed < last {
            (token.purged, token.isEnded) = (pick(sealed...last), true)
        } else {
            token.purged = sweep(expiry)
        }
        tokens.append(token)
        for _ in 0..<pick(0...2) {
            let last = min(token.purged ?? .max, expiry, span.upperBound) - 1
            guard sealed < last else { break }
            let (job, opened) = (id() as JobID, pick(sealed...last))
            events.append((opened, .tokenOpened(id: ref.openedID(job), job: job, template: Self.template)))
            let answered = opened + pick(0...120)
            if answered < span.upperBound {
                events.append((answered, .pushDelivered(job: job, status: 200)))
            } else if let next = spans.first(where: { $0.lowerBound > opened }) {
                events.append((next.lowerBound, .pushFailed(job: job, status: 0, reason: .unknown)))
            }
        }
    }

    /// Returns when the sweeper purges a token with this expiry.
    private mutating func sweep(_ expiry: UInt64) -> UInt64? {
        let purged = expiry + pick(0...100)
        if spans.contains(where: { $0.contains(expiry) && $0.contains(purged) }) { return purged }
        return spans.first { $0.lowerBound > expiry }.map { $0.lowerBound + 60 }
    }

    private mutating func ratchet(in span: Range<UInt64>) {
        var time = span.lowerBound + pick(0...60)
        while time < span.upperBound {
            let overdue = tokens.filter { $0.sealed < time && $0.expiry < time && $0.purged ?? .max > time }.map(\.expiry).min()
            events.append((time, .keysRatcheted(epoch: time / 300 - 2, swept: min(time, overdue ?? time) / 300)))
            time = (time / 300 + 1) * 300 + pick(0...100)
        }
    }

    /// Publishes batches.
    private mutating func publish() {
        let (hour, day) = (setting.hour, setting.day)
        var lookedAt = spans[0].lowerBound / hour * hour
        var lastClosed = spans[0].lowerBound / day * day
        var counts: [UInt64: (sealed: UInt64, expired: UInt64, ended: UInt64)] = [:]
        for span in spans {
            var moments = Array(stride(from: (span.lowerBound / hour + 1) * hour, to: span.upperBound - 240, by: Int(hour)))
            moments.insert(span.lowerBound / hour * hour, at: 0)
            for moment in moments where moment > lookedAt {
                let isMidnight = moment / day > lookedAt / day
                lookedAt = moment
                let sealed = tokens.indices.filter {
                    !tokens[$0].isSealPublished && tokens[$0].sealed < moment && (isMidnight || !tokens[$0].isLong)
                }
                guard isMidnight || sealed.count >= setting.seals else { continue }
                let purged = tokens.indices.filter {
                    let token = tokens[$0]
                    return !token.isPurgePublished && (isMidnight || !token.isLong)
                        && (token.isEnded ? token.purged! : token.expiry) < moment
                }
                let time = max(span.lowerBound, moment, purged.map { tokens[$0].isEnded ? 0 : tokens[$0].purged! }.max() ?? 0)
                for place in sealed {
                    tokens[place].isSealPublished = true
                    counts[tokens[place].until, default: (0, 0, 0)].sealed += 1
                    let until = tokens[place].until * 1_000
                    events.append((time, .tokenSealed(id: tokens[place].ref.sealedID(untilMs: until), untilMs: until)))
                }
                for place in purged {
                    tokens[place].isPurgePublished = true
                    let (isEnded, until) = (tokens[place].isEnded, tokens[place].until)
                    if isEnded { counts[until]!.ended += 1 } else { counts[until]!.expired += 1 }
                    events.append(
                        (
                            time,
                            .tokenPurged(
                                id: tokens[place].ref.purgeID(untilMs: until * 1_000),
                                cause: isEnded ? .ended : .expired(untilMs: until * 1_000))
                        ))
                }
                while isMidnight, lastClosed + day <= moment {
                    lastClosed += day
                    let (sealed, expired, ended) = counts.removeValue(forKey: lastClosed) ?? (0, 0, 0)
                    events.append(
                        (time, .bucketClosed(untilMs: lastClosed * 1_000, sealed: sealed, expired: expired, ended: ended)))
                }
            }
        }
    }
}

/// A log in memory, which tests can damage.
struct MemorySource: LogSource {
    var files: [String: [UInt8]] = [:]

    func read(_ path: String) async throws -> [UInt8]? { files[path] }

    func list(_ folder: String) async throws -> [String]? {
        files.keys.filter { $0.hasPrefix(folder + "/") }.map { String($0.dropFirst(folder.count + 1)) }
    }
}

/// A log published window by window, as a broker does.
struct PublishedLog {
    static let key = try! signingKey("log.example/a")

    /// The policy of an ordinary story.
    static let policy = HonestBroker.Setting().policy

    /// The first entry of a log.
    static func start(_ atMs: UInt64 = 0, resolution: UInt32 = 1, policy: [UInt8] = Self.policy) -> Entry {
        let name = EntryText("n")!
        return Entry(
            atMs: atMs,
            .brokerStarted(
                node: name, version: name, policy: sha256(policy), resolutionSeconds: resolution, binary: sha256([])))
    }

    var source = MemorySource()
    /// The checkpoint of each publication.
    private(set) var checkpoints: [[UInt8]] = []
    private var log = TileLog()

    init(_ entries: [Entry] = [], policies: [[UInt8]] = [Self.policy], key: SigningKey = Self.key) {
        for policy in policies { source.files[TilePath.policy(sha256(policy))] = policy }
        publish([], key)
        var start = 0
        for index in entries.indices where index + 1 == entries.count || entries[index + 1].atMs != entries[index].atMs {
            publish(entries[start...index].map(\.encoded), key)
            start = index + 1
        }
    }

    mutating func publish(_ batch: [[UInt8]], _ key: SigningKey = Self.key) {
        let plan = log.append(batch)
        for file in plan.files {
            source.files[file.path] = file.bytes
            let partials = TilePath.partialFolder(file.path) + "/"
            for path in source.files.keys where path.hasPrefix(partials) { source.files[path] = nil }
        }
        let checkpoint = key.sign(size: plan.newSize, root: plan.root).encoded
        source.files[TilePath.checkpoint] = checkpoint
        checkpoints.append(checkpoint)
        log = plan.log
    }
}
