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
            Standard.error("mayfly-bench: can't protect this process's memory from other processes: \(error)\n")
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
        default: throw BenchError("unknown benchmark. Use engine, courier, rows, ledger or fill.\n\(usage)")
        }
    }

    private static let usage = """
        usage: mayfly-bench engine --listen ADDRESS:PORT [--tls-certificate FILE --tls-key FILE]
               mayfly-bench courier --endpoint ADDRESS:PORT --ca FILE --key FILE [--key-id ID] [--team-id ID] [--topic TOPIC]
                                    [--pushes N] [--in-flight N] [--rate N]
               mayfly-bench rows --database FILE [--pairs-per-transaction N] [--seconds N]
               mayfly-bench ledger --folder DIR [--entries N]
               mayfly-bench fill --state DIR --rooms N --first UNIX-MS [--over MS]
          engine   run only the HTTP server, with the same small answer to every request, until a signal ends it
          courier  run only the APNs client, on one thread: N pushes, at most so many at a time or a second; prints JSON
          rows     write the rows of creates and accepts to a new file in a bare SQLite loop; prints JSON
          ledger   append N entries to a log in a new folder, and verify it; prints JSON
          fill     add N accepted rooms with two tokens each to a stopped broker, their expiries spread evenly from a time on; prints JSON
        """
}

/// What kept a benchmark from running.
struct BenchError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}
