import Dispatch
import Linux

/// `mayfly-bench`: what `make bench` compares the broker with (Benchmarks/, docs/benchmarks.md). Exit 0 or 1.
@main
struct MayflyBench {
    static func main() {
        let words = Array(CommandLine.arguments.dropFirst())
        // `fill` reads a broker's keys.
        do throws(Errno) {
            try ProcessControl.keepMemoryPrivate()
        } catch {
            Standard.error("mayfly-bench: the system does not let this process keep its memory to itself: \(error)\n")
            ProcessControl.exit(1)
        }
        Signal.ignore(.pipe)
        Task.detached {
            do {
                try await run(words)
                ProcessControl.exit(0)
            } catch {
                Standard.error("mayfly-bench: \(error)\n")
                ProcessControl.exit(1)
            }
        }
        while true { DispatchSemaphore(value: 0).wait() }
    }

    private static func run(_ words: [String]) async throws {
        if words.contains("--help") || words.contains("-h") { return Standard.output(usage + "\n") }
        let rest = words.dropFirst()
        switch words.first {
        case "engine": try await EngineBench.run(Flags(rest, ["listen", "tls-certificate", "tls-key"]))
        case "courier":
            try await CourierBench.run(
                Flags(rest, ["endpoint", "ca", "key", "key-id", "team-id", "topic", "pushes", "in-flight", "rate"]))
        case "rows": try RowsBench.run(Flags(rest, ["database", "pairs-per-transaction", "seconds"]))
        case "ledger": try await LedgerBench.run(Flags(rest, ["folder", "entries"]))
        case "fill": try await FillBench.run(Flags(rest, ["state", "rooms", "first", "over"]))
        default: throw BenchError("no such benchmark.\n\(usage)")
        }
    }

    private static let usage = """
        usage: mayfly-bench engine --listen ADDRESS:PORT [--tls-certificate FILE --tls-key FILE]
               mayfly-bench courier --endpoint ADDRESS:PORT --ca FILE --key FILE [--key-id ID] [--team-id ID] [--topic TOPIC]
                                    [--pushes N] [--in-flight N] [--rate N]
               mayfly-bench rows --database FILE [--pairs-per-transaction N] [--seconds N]
               mayfly-bench ledger --folder DIR [--entries N]
               mayfly-bench fill --state DIR --rooms N --first UNIX-MS [--over MS]
          engine   the HTTP server alone: the same small answer to every request, until a signal ends it
          courier  the APNs client alone, on one thread: N pushes, so many of them at a time or a second; prints JSON
          rows     a bare SQLite loop that writes the rows of creates and accepts to a new file; prints JSON
          ledger   a log that grows to N entries in a new folder, and is verified; prints JSON
          fill     N accepted rooms with two tokens each for a stopped broker, their ends spread evenly from a moment on; prints JSON
        """
}

/// What kept a benchmark from running.
struct BenchError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}
