import Linux
import Storage

/// `mayfly migrate`: makes PostgreSQL's tables, moves a SQLite broker there, or prepares a return to the previous release.
enum MigrateCommand {
    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Terminal.help(usage, [.state, .database])) }
        let configuration = try Configuration(words, keys: [.state, .database], switches: ["back", "move"])
        guard configuration.operands.isEmpty else { throw UsageError("migrate accepts flags only") }
        let state = try configuration.state
        switch (state.database, isBack: configuration.has("back"), isMove: configuration.has("move")) {
        case (_, isBack: true, isMove: true): throw UsageError("--back and --move exclude each other")
        case (.file(let path), isBack: true, isMove: false): try stepBack(state, path)
        case (.server, isBack: true, isMove: false):
            throw UsageError("migrate --back is for a SQLite file. A PostgreSQL database keeps its tables' version")
        case (.server(let uri), isBack: false, isMove: true): try move(state, to: uri)
        case (.server(let uri), isBack: false, isMove: false): try makeSchema(uri)
        case (.file, isBack: false, isMove: _):
            throw UsageError(
                "migrate needs --back, or --database with PostgreSQL's URI. A start migrates the previous release's SQLite file by itself"
            )
        }
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

    private static func stepBack(_ state: StateFolder, _ path: String) throws {
        try state.checkUsable()
        let lock = try state.lock()
        defer { extendLifetime(lock) }
        guard try state.database.exists() else {
            throw CommandFailed("\(state.shownDatabase) is missing or empty: no broker has run on this state folder")
        }
        try CommandFailed.naming(state.shownDatabase) { try SQLiteStore.stepBack(path: path) }
        Terminal.out(
            "\(state.shownDatabase) has the previous release's tables. Now start that release, or this one to go on.")
    }

    private static let usage = """
        usage: mayfly migrate --database postgresql://...
               mayfly migrate --database postgresql://... --move [--state DIR]
               mayfly migrate --back [--state DIR]
        Without another flag: makes Mayfly's tables in an empty PostgreSQL database, or says that they are current.

        --move makes the tables if necessary, moves all rows of the state folder's mayfly.sqlite there and destroys that file. Stop the broker
        cleanly first. If the command is interrupted, run it again. Afterwards a restart of a node that is alone forgets everything, unless its
        key file is wrapped.

        --back gives a SQLite file the tables of the previous release, without loss. Stop the broker, run this with the present release, then
        install the previous one. The changelog says if a release can't be undone. A start of the present release migrates forward again.
        """
}
