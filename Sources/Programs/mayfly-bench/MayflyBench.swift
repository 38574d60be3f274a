import Dispatch
import Linux
import Vocabulary

/// `mayfly-bench`: the measured programs of `make bench` (Benchmarks/, docs/benchmarks.md). Exits with 0, 1 or, if it is
/// used wrongly, 2.
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
                ProcessControl.exit(error is UsageError ? 2 : 1)
            }
        }
        while true { DispatchSemaphore(value: 0).wait() }
    }

    private static func run(_ words: [String]) async throws {
        if words.contains("--help") || words.contains("-h") {
            let named = benchmarks.filter { $0.name == words.first }
            return Standard.output(usage(named.isEmpty ? benchmarks : named) + "\n")
        }
        let rest = words.dropFirst()
        switch words.first {
        case "engine": try await EngineBench.run(Flags(rest, ["listen", "tls-certificate", "tls-key"]))
        case "courier":
            try await CourierBench.run(
                Flags(
                    rest, ["endpoint", "ca", "key", "key-id", "team-id", "topic", "subscriptions", "pushes", "in-flight", "rate"])
            )
        case "messages": try MessageBench.run(Flags(rest, ["messages"]))
        case "rows": try RowsBench.run(Flags(rest, ["database", "pairs-per-transaction", "seconds"]))
        case "ledger": try await LedgerBench.run(Flags(rest, ["folder", "entries"]))
        case "fill": try await FillBench.run(Flags(rest, ["state", "rooms", "first", "over"]))
        default: throw UsageError("unknown benchmark. Use engine, courier, messages, rows, ledger or fill.\n\(usage(benchmarks))")
        }
    }

    private static let benchmarks: [(name: String, flags: String, summary: String)] = [
        (
            "engine", "--listen ADDRESS:PORT [--tls-certificate FILE --tls-key FILE]",
            "run only the HTTP server, with the same small answer to every request, until a signal ends it"
        ),
        (
            "courier",
            """
            --ca FILE --key FILE (--endpoint ADDRESS:PORT [--key-id ID] [--team-id ID] [--topic TOPIC] | --subscriptions FILE) [--pushes N] \
            [--in-flight N] [--rate N]
            """,
            "run only the client of APNs or, with subscriptions, of Web Push, on one thread: N pushes, at most so many at a time or a second; prints JSON"
        ),
        ("messages", "[--messages N]", "encrypt N Web Push messages, and send none; prints JSON"),
        (
            "rows", "--database FILE [--pairs-per-transaction N] [--seconds N]",
            "write the rows of creates and accepts to a new file in a bare SQLite loop; prints JSON"
        ),
        ("ledger", "--folder DIR [--entries N]", "append N entries to a log in a new folder, and verify it; prints JSON"),
        (
            "fill", "--state DIR --rooms N --first UNIX-MS [--over MS]",
            "add N accepted rooms with two tokens each to a stopped broker, their expiries spread evenly from a time on; prints JSON"
        ),
    ]

    private static func usage(_ shown: [(name: String, flags: String, summary: String)]) -> String {
        let synopses = shown.map { "mayfly-bench \($0.name) \($0.flags)" }.joined(separator: "\n       ")
        return "usage: \(synopses)\n" + shown.map { "  \($0.name): \($0.summary)" }.joined(separator: "\n")
    }
}

/// The reason why a benchmark could not run.
struct BenchError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// A wrong word or flag on the command line.
struct UsageError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// The flags of a benchmark: `--name value`. Unknown flags are an error.
struct Flags {
    private var values: [String: String] = [:]

    init(_ words: some Sequence<String>, _ known: Set<String>) throws {
        var words = words.makeIterator()
        while let word = words.next() {
            let name = String(word.dropFirst(2))
            guard word.hasPrefix("--"), known.contains(name) else {
                let flags = known.sorted().map { "--\($0)" }.joined(separator: ", ")
                throw UsageError("\(word) is not a flag here. The flags are \(flags).")
            }
            guard let value = words.next() else { throw UsageError("--\(name) needs a value") }
            values[name] = value
        }
    }

    subscript(_ name: String) -> String? { values[name] }

    func required(_ name: String) throws -> String {
        guard let value = values[name] else { throw UsageError("--\(name) is missing: see --help") }
        return value
    }

    /// Parses a whole number from 1 to `most`.
    func count(_ name: String, default standard: Int, most: Int = 1_000_000) throws -> Int {
        guard let text = values[name] else { return standard }
        guard let value = Int(text), (1...most).contains(value) else {
            throw UsageError("--\(name) must be a whole number from 1 to \(most)")
        }
        return value
    }

    /// Parses unix milliseconds, or a duration in milliseconds.
    func milliseconds(_ name: String) throws -> UInt64? {
        guard let text = values[name] else { return nil }
        guard let value = UInt64(text) else { throw UsageError("--\(name) must be whole milliseconds") }
        return value
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): cheap random numbers that needn't be secret.
struct FastRandom {
    var state: UInt64

    mutating func word() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }

    mutating func bytes(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count + 8)
        while bytes.count < count {
            let word = word()
            for shift in stride(from: UInt64(0), to: 64, by: 8) { bytes.append(UInt8(truncatingIfNeeded: word >> shift)) }
        }
        bytes.removeLast(bytes.count - count)
        return bytes
    }

    mutating func digest() -> Digest { Digest(bytes: bytes(32).span)! }

    mutating func id<ID: OpaqueID>() -> ID { ID(high: word(), low: word()) }
}
