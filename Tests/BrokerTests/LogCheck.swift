import Sealing

@testable import Ledger

/// Judges a log after its story: by the verifier, with all checkpoints that were ever seen, by what the verifier would have said at each of
/// them, and by what callers were told.
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

    private let source: FolderSource
    private let key: VerifierKey
    private let kept: [[UInt8]]
    private let facts: Facts

    init(_ broker: SimulatedBroker, _ facts: Facts) {
        source = FolderSource(broker.ledger.path)
        key = broker.key.verifierKey
        kept = broker.kept.all
        self.facts = facts
    }

    /// - Parameter isOver: everything has expired, and nothing may be left open.
    func run(isOver: Bool = true) async throws -> Report {
        let older = kept.enumerated().map { Verifier.OlderCheckpoint(name: "checkpoint \($0.offset)", bytes: $0.element) }
        let report: Report
        do {
            report = try await Verifier(source, key: key).verify(since: older)
        } catch { throw Fault.unverified(error.description) }
        let entries = try await entries(report.size)
        try checkEachHead(entries)
        try checkFacts(entries, report)
        if isOver, report.live > 0 || report.pending > 0 {
            throw Fault.missing("\(report.live) purges and \(report.pending) outcomes")
        }
        return report
    }

    private func entries(_ size: UInt64) async throws -> [Entry] {
        let reader = TileReader(source, size: size)
        var entries: [Entry] = []
        for bundle in 0..<(size + 255) / 256 {
            for bytes in try await reader.entries(bundle: bundle) { entries.append(try Entry(canonical: bytes.span)) }
        }
        return entries
    }

    private func checkEachHead(_ entries: [Entry]) throws {
        let sizes = Set(kept.compactMap { SignedNote($0)?.checkpoint(signedBy: key)?.size })
        var life = LifeCycle()
        for (index, entry) in entries.enumerated() {
            do {
                try life.admit(entry, index: UInt64(index))
                guard sizes.contains(UInt64(index) + 1) else { continue }
                var head = life
                _ = try head.finish()
            } catch { throw Fault.unverifiedAt(size: UInt64(index) + 1, "\(error)") }
        }
    }

    private func checkFacts(_ entries: [Entry], _ report: Report) throws {
        var sealed: Set<String> = []
        for entry in entries { if case .tokenSealed(let ref, _, _) = entry.op { sealed.insert(ref.description) } }
        var refusals: Set<String> = []
        for entry in entries {
            guard case .requestRefused(let cause, _) = entry.op else { continue }
            guard refusals.insert("\(entry.atMs) \(cause)").inserted else {
                throw Fault.twice("refused, \(cause), in one window")
            }
        }
        for ref in facts.refs where !sealed.contains(ref.description) { throw Fault.missing("token.sealed of \(ref)") }
        guard report.opened >= facts.pushes else {
            throw Fault.missing("\(facts.pushes) pushes were acknowledged, \(report.opened) opened")
        }
    }
}
