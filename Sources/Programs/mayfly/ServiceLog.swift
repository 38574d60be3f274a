import Broker
import JSON
import Linux
import Synchronization
import Vocabulary

/// The lines of a service on standard error. A line never contains data from a caller.
///
/// Text lines for the journal begin with their level as `<N>` (sd-daemon(3)) and have no time, which the journal adds.
enum ServiceLog {
    static let keys: [Setting] = [.logFormat, .logLevel]

    private enum Format: String { case text, json }

    private struct State {
        var format = Format.text
        var least = Logger.Level.info
        var kept: [String]?
    }

    private static let state = Mutex(State())

    /// Applies `--log-format` and `--log-level` to all later lines.
    static func use(_ configuration: Configuration) throws {
        let (format, least) = try parse(configuration)
        state.withLock { ($0.format, $0.least) = (format, least) }
    }

    /// Returns the settings for `mayfly check`.
    static func check(_ configuration: Configuration) throws -> String {
        let (format, least) = try parse(configuration)
        return "\(format.rawValue), from \(least.rawValue) on"
    }

    private static func parse(_ configuration: Configuration) throws -> (Format, Logger.Level) {
        guard let format = Format(rawValue: configuration.value(.logFormat)) else {
            throw configuration.invalid(.logFormat, "must be text or json")
        }
        guard let least = Logger.Level(rawValue: configuration.value(.logLevel)) else {
            throw configuration.invalid(.logLevel, "must be error, warning or info")
        }
        return (format, least)
    }

    fileprivate static func write(_ level: Logger.Level, _ text: String) {
        let (format, isWritten) = state.withLock { state in
            guard state.kept == nil else {
                state.kept?.append(text)
                return (state.format, false)
            }
            return (state.format, level.isAtLeast(state.least))
        }
        guard isWritten else { return }
        let word = level == .info ? "" : "\(level.rawValue): "
        switch format {
        case .json: put(level, json(level, text))
        case .text where Standard.errorIsJournal: put(level, word + text)
        case .text: put(level, "\(Timestamp.text(Clock.wallMs)) \(word)\(text)")
        }
    }

    /// Writes the reason why a command ends with a failure: in JSON if that is configured, otherwise without time.
    static func fail(_ text: String) {
        put(.error, state.withLock(\.format) == .json ? json(.error, text) : text)
    }

    /// Keeps all lines from now on instead of writing them.
    static func keep() { state.withLock { $0.kept = [] } }

    /// Returns the lines that were kept since the last call.
    static func takeKept() -> [String] {
        state.withLock { state in
            defer { state.kept = [] }
            return state.kept ?? []
        }
    }

    private static func json(_ level: Logger.Level, _ text: String) -> String {
        Terminal.json { json in
            json.add("time", Timestamp.text(Clock.wallMs))
            json.add("level", level.rawValue)
            json.add("message", text)
        }
    }

    private static func put(_ level: Logger.Level, _ text: String) {
        Progress.clear()
        let mark = Standard.errorIsJournal ? "<\(level.priority)>" : ""
        Standard.error(text.split(separator: "\n").map { "\(mark)\($0)\n" }.joined())
    }
}

extension Terminal {
    /// Writes one line to the service's log. Must never contain data from a caller.
    static func log(_ text: String) { ServiceLog.write(.info, text) }

    static func log(_ level: Logger.Level, _ text: String) { ServiceLog.write(level, text) }
}
