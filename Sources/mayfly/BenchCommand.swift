import Linux

/// `mayfly bench engine|courier|rows|ledger|fill`: what `make bench` holds the broker against (Benchmarks/, docs/benchmarks.md).
enum BenchCommand {
    private static let subcommands = [
        Subcommand(
            "engine", ["--listen ADDRESS:PORT [--tls-certificate FILE --tls-key FILE]"],
            "the HTTP server alone: the same small answer to every request, until SIGTERM"),
        Subcommand(
            "courier",
            [
                """
                --endpoint ADDRESS:PORT --ca FILE --key FILE [--key-id ID] [--team-id ID] [--topic TOPIC]
                                            [--pushes N] [--in-flight N] [--rate N]
                """
            ], "the APNs client alone, on one thread: N pushes, so many of them at a time or a second; prints JSON"),
        Subcommand(
            "rows", ["--database FILE [--pairs-per-transaction N] [--seconds N]"],
            "a bare SQLite loop that writes the rows of creates and accepts to a new file; prints JSON"),
        Subcommand(
            "ledger", ["--folder DIR [--entries N]"],
            "a log that grows to N entries in a new folder, and is verified; prints JSON"),
        Subcommand(
            "fill", ["--state DIR --rooms N --first UNIX-MS [--over MS]"],
            "N accepted rooms with two tokens each for a stopped broker, their ends spread evenly from a moment on; prints JSON"),
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
        default: throw UsageError("bench takes engine, courier, rows, ledger or fill.\n\(usage)")
        }
    }

    /// Flags and values only; the environment names none of them.
    private static func options(_ words: [String], _ known: Set<String>) throws -> [String: String] {
        let configuration = try Configuration(words, environment: [], keys: [], options: known)
        guard configuration.operands.isEmpty else { throw UsageError("bench takes flags only.\n\(usage)") }
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
            throw UsageError("--\(name) takes a whole number from 1 to \(most)")
        }
        return value
    }
}
