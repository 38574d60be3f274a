import Linux
import Storage

/// `mayfly migrate --back`: prepares a return to the previous release.
enum MigrateCommand {
    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Terminal.help(usage, [.state, .database])) }
        let configuration = try Configuration(words, keys: [.state, .database], switches: ["back"])
        guard configuration.operands.isEmpty else { throw UsageError("migrate accepts flags only") }
        guard configuration.has("back") else {
            throw UsageError("migrate needs --back. A start migrates the previous release's database by itself")
        }
        let state = configuration.state
        try state.checkUsable()
        let lock = try state.lock()
        defer { extendLifetime(lock) }
        guard case .file(let path) = state.database else {
            throw UsageError("migrate --back is for a SQLite file. A PostgreSQL database keeps its tables' version")
        }
        guard try state.database.exists() else {
            throw CommandFailed("\(state.shownDatabase) is missing or empty: no broker has run on this state folder")
        }
        try CommandFailed.naming(state.shownDatabase) { try SQLiteStore.stepBack(path: path) }
        Terminal.out(
            "\(state.shownDatabase) has the previous release's tables. Now start that release, or this one to go on.")
    }

    private static let usage = """
        usage: mayfly migrate --back [--state DIR]
        Gives the database the tables of the previous release, without loss. Stop the broker, run this with the present release, then install
        the previous one. The changelog says if a release can't be undone. A start of the present release migrates forward again.
        """
}
