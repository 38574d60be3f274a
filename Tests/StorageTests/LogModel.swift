import Ledger
import Policy
import Testing

@testable import Storage

/// The rules of the log that the store keeps, said once more in other words.
struct LogModel {
    struct Line {
        let text: String

        init(_ entry: ClosedEntry) { text = String(decoding: entry.bytes, as: UTF8.self) }

        func string(_ key: String) -> String? {
            text.range(of: "\"\(key)\":\"").map { String(text[$0.upperBound...].prefix { $0 != "\"" }) }
        }
        func number(_ key: String) -> Int? {
            text.range(of: "\"\(key)\":").flatMap { Int(text[$0.upperBound...].prefix { $0.isNumber }) }
        }
        var op: String { string("op")! }
        var at: String { string("at")! }

        var rank: Int {
            [
                "token.opened": 1, "push.delivered": 2, "push.failed": 2, "token.sealed": 3, "token.purged": 4,
                "bucket.closed": 5, "ledger.closed": 6,
            ][op]
                ?? 0
        }
        var key: String { (rank == 2 ? string("job") : rank == 5 ? string("until") : string("id")) ?? "" }
    }

    let timing: LedgerTiming
    /// By the text of `until`, which sorts as its time does.
    var live: [String: Int] = [:]
    private var sealed: [String: Int] = [:]
    private var expired: [String: Int] = [:]
    private(set) var ended = 0
    private(set) var booked = 0
    private(set) var closed: [String] = []
    private(set) var ops: [String: Int] = [:]
    /// The seals of each batch, and whether it has closings.
    private(set) var batches: [(at: String, seals: Int, isMidnight: Bool)] = []

    init(_ timing: LedgerTiming) { self.timing = timing }

    mutating func admit(_ entries: [ClosedEntry]) {
        var last: Line?
        var isInBatch = false
        for line in entries.map({ Line($0) }) {
            if let last {
                #expect(last.at <= line.at)
                if last.at == line.at, line.rank > 0 {
                    #expect((last.rank, last.key) < (line.rank, line.key), "\(last.text) \(line.text)")
                }
            }
            if !(3...5).contains(line.rank) {
                isInBatch = false
            } else {
                if !isInBatch || last?.at != line.at { batches.append((line.at, 0, false)) }
                isInBatch = true
            }
            ops[line.op, default: 0] += 1
            admit(line)
            last = line
        }
        for batch in batches { #expect(batch.isMidnight || batch.seals >= timing.batchSeals, "\(batch)") }
    }

    private mutating func admit(_ line: Line) {
        switch line.op {
        case "token.sealed":
            let until = line.string("until")!
            #expect(closed.allSatisfy { $0 < until }, "\(line.text) after its bucket was closed")
            sealed[until, default: 0] += 1
            live[until, default: 0] += 1
            batches[batches.count - 1].seals += 1
        case "token.purged" where line.string("until") == nil: ended += 1
        case "token.purged":
            let until = line.string("until")!
            #expect(closed.allSatisfy { $0 < until }, "\(line.text) after its bucket was closed")
            expired[until, default: 0] += 1
            live[until, default: 0] -= 1
        case "bucket.carried": live[line.string("until")!] = line.number("live")!
        case "bucket.closed":
            let until = line.string("until")!
            let early = line.number("ended")!
            #expect(line.number("sealed") == sealed[until, default: 0] && line.number("expired") == expired[until, default: 0])
            booked += early
            #expect(booked <= ended)
            let rest = live.removeValue(forKey: until).map { $0 - early } ?? -early
            #expect(until <= line.at ? rest == 0 : rest >= 0, "\(line.text)")
            if until <= line.at { closed.append(until) }
            batches[batches.count - 1].isMidnight = true
        case "ledger.closed": #expect(live.values.allSatisfy { $0 == 0 })
        default: break
        }
    }
}
