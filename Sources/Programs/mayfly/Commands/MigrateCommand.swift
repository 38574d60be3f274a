import Linux
import Storage

/// `mayfly migrate`: makes PostgreSQL's tables, or moves a SQLite broker there.
enum MigrateCommand {
    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Terminal.help(usage, [.state, .database])) }
        let configuration = try Configuration(words, keys: [.state, .database], switches: ["move"])
        guard configuration.operands.isEmpty else { throw UsageError("migrate accepts flags only") }
        let state = try configuration.state
        guard case .server(let uri) = state.database else { throw UsageError("migrate needs --database with PostgreSQL's URI") }
        if configuration.has("move") { try move(state, to: uri) } else { try makeSchema(uri) }
    }

    private static func makeSchema(_ uri: String) throws {
        let isMade = try CommandFailed.naming("the PostgreSQL database") { try PostgresStore.makeSchema(uri: uri) }
        Terminal.out(
            isMade ? "made the tables in the PostgreSQL database." : "The PostgreSQL database has this release's tables.")
    }

    private static func move(_ state: StateFolder, to uri: String) throws {
        try state.checkUsable()
        let lock = try state.lock()
        defer { extendLifetime(lock) }
        let file = state.shown(state.sqlite)
        if !state.hasWrappedKeys {
            Terminal.out(
                "Before it moves: with PostgreSQL the keys are only in the nodes' memory. \(LoneKeys.meaning).\n"
                    + "\(state.shown(state.ratchetKey)) isn't wrapped, so start a second node before you restart the first one.")
        }
        if let moved = try StoreMove.run(from: state.sqlite, to: uri) {
            Terminal.out(
                "moved \(moved.rooms) rooms, \(moved.tokens) tokens and \(moved.registrations) registrations to PostgreSQL and "
                    + "destroyed \(file).")
        } else {
            Terminal.out("An earlier run moved the rows to PostgreSQL. This one destroyed \(file).")
        }
        Terminal.out(
            "Start the broker with --database. Its first start takes the keys from the key file into memory and destroys the file, unless "
                + "it is wrapped.")
    }

    private static let usage = """
        usage: mayfly migrate --database postgresql://...
               mayfly migrate --database postgresql://... --move [--state DIR]
        Without another flag: makes Mayfly's tables in an empty PostgreSQL database, or says that they are current.

        --move makes the tables if necessary, moves all rows of the state folder's mayfly.sqlite there and destroys that file. Stop the broker
        cleanly first. If the command is interrupted, run it again. Afterwards a restart of a node that is alone forgets everything, unless its
        key file is wrapped.
        """
}
