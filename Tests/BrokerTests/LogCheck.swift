import Policy
import Sealing
import Sodium
import Vocabulary

@testable import Ledger

/// Checks a log after its story. The verifier must accept it with all checkpoints that were ever published, and at each of them. It must
/// contain all acknowledged operations.
struct LogCheck {
    enum Fault: Error, CustomStringConvertible {
        case unverified(String)
        case unverifiedAt(size: UInt64, String)
        case missing(String)
        case twice(String)

        var description: String {
            switch self {
            case .unverified(let why): "the log does not verify: \(why)"
            case .unverifiedAt(let size, let why): "the log did not verify at \(size) entries: \(why)"
            case .missing(let what): "missing in the log: \(what)"
            case .twice(let what): "twice in the log: \(what)"
            }
        }
    }

    private let folder: LedgerFolder
    private let source: FolderSource
    private let key: VerifierKey
    private let kept: [[UInt8]]
    private let facts: Facts

    init(_ broker: SimulatedBroker, _ facts: Facts) {
        folder = broker.ledger
        source = FolderSource(broker.ledger.path)
        key = broker.key.verifierKey
        kept = broker.kept.all
        self.facts = facts
    }

    init(_ folder: LedgerFolder, _ key: VerifierKey, kept: [[UInt8]], _ facts: Facts) {
        (self.folder, self.key, self.kept, self.facts) = (folder, key, kept, facts)
        source = FolderSource(folder.path)
    }

    /// - Parameter isOver: true if everything has expired, so that nothing may be left open.
    func run(isOver: Bool = true) async throws -> Report {
        let older = kept.enumerated().map { Verifier.OlderCheckpoint(name: "checkpoint \($0.offset)", bytes: $0.element) }
        let report: Report
        do {
            report = try await Verifier(source, key: key, allowsGaps: true).verify(since: older)
        } catch { throw Fault.unverified(error.description) }
        let entries = try await entries(report.size)
        try checkEachHead(entries)
        try checkFacts(try entries.map { try Entry(canonical: $0.span) }, report)
        if isOver, report.live > 0 || report.pending > 0 {
            throw Fault.missing("\(report.live) purges and \(report.pending) outcomes")
        }
        return report
    }

    private func entries(_ size: UInt64) async throws -> [[UInt8]] {
        let reader = TileReader(source, size: size)
        var entries: [[UInt8]] = []
        for bundle in 0..<(size + 255) / 256 { entries += try await reader.entries(bundle: bundle) }
        return entries
    }

    private func checkEachHead(_ entries: [[UInt8]]) throws {
        let sizes = Set(kept.compactMap { SignedNote($0)?.checkpoint(signedBy: key)?.size })
        var life = Conservation(allowsGaps: true)
        for (number, bytes) in entries.enumerated() {
            do {
                let (index, fields) = (UInt64(number), try EntryFields(bytes.span))
                try life.place(fields, index)
                try life.apply(fields, bytes.span, try rules(fields, bytes), index)
                guard sizes.contains(index + 1) else { continue }
                var head = life
                _ = try head.finish()
            } catch { throw Fault.unverifiedAt(size: UInt64(number) + 1, "\(error)") }
        }
    }

    private func rules(_ fields: EntryFields, _ bytes: [UInt8]) throws -> PublishedRules? {
        guard !fields.policy.isEmpty, let policy = Digest(hex: bytes.span.extracting(fields.policy)) else { return nil }
        return try folder.read(TilePath.policy(policy)).flatMap { PublishedRules($0) }
    }

    private func checkFacts(_ entries: [Entry], _ report: Report) throws {
        var sealed: Set<String> = []
        var untils: Set<UInt64> = []
        for entry in entries {
            guard case .tokenSealed(let id, let until) = entry.op else { continue }
            sealed.insert(id.description)
            untils.insert(until)
        }
        // A broker reports a cause once a window. One that starts may be in the window in which the last one was killed.
        var starts: [UInt64: Int] = [:]
        var refusals: [UInt64: [Entry.RefusalCause: Int]] = [:]
        for entry in entries {
            switch entry.op {
            case .brokerStarted: starts[entry.atMs, default: 0] += 1
            case .requestRefused(let cause, _): refusals[entry.atMs, default: [:]][cause, default: 0] += 1
            default: break
            }
        }
        for (atMs, causes) in refusals {
            for (cause, count) in causes where count > 1 + starts[atMs, default: 0] {
                throw Fault.twice("refused, \(cause), in one window")
            }
        }
        // The owner of a ref finds the entry by trying each day.
        for ref in facts.refs {
            let ids = untils.map { ref.sealedID(untilMs: $0).description }
            guard ids.contains(where: sealed.contains) else { throw Fault.missing("token.sealed of \(ref)") }
        }
        guard report.opened >= facts.pushes else {
            throw Fault.missing("\(facts.pushes) pushes were acknowledged, \(report.opened) opened")
        }
        guard report.delivered >= facts.deliveries else {
            throw Fault.missing("\(facts.deliveries) pushes were delivered, \(report.delivered) in the log")
        }
    }
}
