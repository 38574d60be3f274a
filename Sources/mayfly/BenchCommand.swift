import Linux

/// `mayfly bench engine|courier|rows|ledger|fill`: what `make bench` holds the broker against (Benchmarks/, docs/benchmarks.md).
enum BenchCommand {
    private static let subcommands = [
        Subcommand(
            "engine", ["--listen ADDRESS:PORT [--tls-certificate FILE --tls-key FILE]"],
            "run only the HTTP server, with the same small answer to every request, until SIGTERM"),
        Subcommand(
            "courier",
            [
                """
                --endpoint ADDRESS:PORT --ca FILE --key FILE [--key-id ID] [--team-id ID] [--topic TOPIC]
                                            [--pushes N] [--in-flight N] [--rate N]
                """
            ], "run only the APNs client, on one thread: N pushes, at most so many at a time or a second; prints JSON"),
        Subcommand(
            "rows", ["--database FILE [--pairs-per-transaction N] [--seconds N]"],
            "write the rows of creates and accepts to a new file in a bare SQLite loop; prints JSON"),
        Subcommand(
            "ledger", ["--folder DIR [--entries N]"],
            "append N entries to a log in a new folder, and verify it; prints JSON"),
        Subcommand(
            "fill", ["--state DIR --rooms N --first UNIX-MS [--over MS]"],
            "add N accepted rooms with two tokens each to a stopped broker, their expiries spread evenly from a time on; prints JSON"
        ),
    ]
    private static var usage: String { Subcommand.help([], "bench", subcommands) }

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "bench", subcommands)) }
        let rest = Array(words.dropFirst())
        switch words.first {
        case "engine":
            try await EngineBench.run(try options(rest, ["listen", "tls-certificate", "tls-key"]))
        case "courier":
            try await CourierBench.run(
                try options(
                    rest, ["endpoint", "ca", "key", "key-id", "team-id", "topic", "pushes", "in-flight", "rate"]))
        case "rows":
            try RowsBench.run(try options(rest, ["database", "pairs-per-transaction", "seconds"]))
        case "ledger":
            try await LedgerBench.run(try options(rest, ["folder", "entries"]))
        case "fill":
            try await FillBench.run(try options(rest, ["state", "rooms", "first", "over"]))
        default: throw UsageError("unknown bench command. Use engine, courier, rows, ledger or fill.\n\(usage)")
        }
    }

    /// Flags and values only; the environment names none of them.
    private static func options(_ words: [String], _ known: Set<String>) throws -> [String: String] {
        let configuration = try Configuration(words, environment: [], keys: [], options: known)
        guard configuration.operands.isEmpty else { throw UsageError("bench accepts flags only.\n\(usage)") }
        return configuration.repeated.compactMapValues(\.last)
    }

    static func required(_ options: [String: String], _ name: String) throws -> String {
        guard let value = options[name] else { throw UsageError("--\(name) is missing.\n\(usage)") }
        return value
    }

    /// A whole number from 1 on.
    static func count(_ options: [String: String], _ name: String, default standard: Int, most: Int = 1_000_000) throws -> Int {
        guard let text = options[name] else { return standard }
        guard let value = Int(text), (1...most).contains(value) else {
            throw UsageError("--\(name) must be a whole number from 1 to \(most)")
        }
        return value
    }
}
