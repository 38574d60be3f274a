import Broker
import JSON
import Linux

/// `mayfly check`: examines what a broker needs, by the same code as its start. Changes nothing and may run beside a broker.
enum CheckCommand {
    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Terminal.help(usage, ServeCommand.keys)) }
        let configuration = try Configuration(words, keys: ServeCommand.keys, switches: ["offline", "json"])
        guard configuration.operands.isEmpty else { throw UsageError("check accepts flags only") }
        ServiceLog.keep()
        var report = CheckReport()
        try await StartChecks(configuration, isOffline: configuration.has("offline")).run(&report)
        Terminal.out(configuration.has("json") ? report.json : report.text)
        try report.throwIfBad()
    }

    private static let usage = """
        usage: mayfly check [--offline] [--json] [FLAGS]
        Checks settings, keys, permissions, disk, database, log, memory, clock and Apple, with the broker's settings and as the broker's user.
        Each line is good, warning or bad, and says what to do. Changes nothing, and may run beside the broker.
        Exit status: 0 no line is bad, 1 a line is bad, 2 a setting is missing or malformed.
          --offline  ask neither Apple nor the copy at a URL that --ledger-mirror names
          --json     an array of objects with check, result and text
        """
}

/// The lines of `mayfly check`.
struct CheckReport {
    private enum Result: String {
        case good, warning, bad

        var level: Logger.Level {
            switch self {
            case .good: .info
            case .warning: .warning
            case .bad: .error
            }
        }
    }

    private struct Line {
        let name: String
        let result: Result
        let text: String
    }

    private var lines: [Line] = []
    private var hasInvalidSetting = false

    /// Runs one check. It is bad if `body` throws, and a warning if `body` logs warnings.
    /// - Parameter body: returns a value for later checks, and what is good.
    /// - Returns: nil if the check is bad.
    mutating func examine<Value>(_ name: String, _ body: () async throws -> (value: Value, text: String)) async -> Value? {
        do {
            let (value, text) = try await body()
            let warnings = ServiceLog.takeKept()
            add(name, .warning, warnings)
            if warnings.isEmpty { add(name, .good, [text]) }
            return value
        } catch {
            add(name, .warning, ServiceLog.takeKept())
            add(name, .bad, ["\(error)"])
            hasInvalidSetting = hasInvalidSetting || error is UsageError
            return nil
        }
    }

    /// The same for a check without a value.
    mutating func check(_ name: String, _ body: () async throws -> String) async {
        _ = await examine(name) { ((), try await body()) }
    }

    private mutating func add(_ name: String, _ result: Result, _ texts: [String]) {
        lines += texts.map { Line(name: name, result: result, text: $0) }
    }

    var text: String {
        lines.map { line in
            let mark = Standard.outputIsJournal ? "<\(line.result.level.priority)>" : ""
            return "\(mark)\(line.result.rawValue.padded(9))\(line.name.padded(13))\(line.text)"
        }.joined(separator: "\n")
    }

    var json: String {
        let objects = lines.map { line in
            Terminal.json { json in
                json.add("check", line.name)
                json.add("result", line.result.rawValue)
                json.add("text", line.text)
            }
        }
        return "[" + objects.joined(separator: ",\n") + "]"
    }

    /// - Throws: `CheckFailed` if a line is bad, with the status of `UsageError` if a setting is invalid.
    func throwIfBad() throws {
        let bad = lines.filter { $0.result == .bad }.count
        guard bad > 0 else { return }
        let text = "\(bad) check\(bad == 1 ? " is" : "s are") bad"
        throw CheckFailed(text, status: hasInvalidSetting ? 2 : 1)
    }
}
