import Linux

/// `mayfly bench engine|rows`: what `make bench` holds the broker against (Benchmarks/, docs/benchmarks.md).
enum BenchCommand {
    private static let usage = """
        usage: mayfly bench engine --listen ADDRESS:PORT [--tls-certificate FILE --tls-key FILE]
               mayfly bench rows --database FILE [--pairs-per-transaction N] [--seconds N]
          engine  the HTTP server alone: the same small answer to every request, until SIGTERM
          rows    a bare SQLite loop that writes the rows of creates and accepts to a new file; prints JSON
        """

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(usage) }
        let rest = Array(words.dropFirst())
        switch words.first {
        case "engine":
            try await EngineBench.run(try options(rest, ["listen", "tls-certificate", "tls-key"]))
        case "rows":
            try RowsBench.run(try options(rest, ["database", "pairs-per-transaction", "seconds"]))
        default: throw UsageError("bench takes engine or rows.\n\(usage)")
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
    static func count(_ options: [String: String], _ name: String, default standard: Int) throws -> Int {
        guard let text = options[name] else { return standard }
        guard let value = Int(text), (1...1_000_000).contains(value) else {
            throw UsageError("--\(name) takes a whole number from 1 to 1000000")
        }
        return value
    }
}
