import Broker
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Sodium
import Storage
import Vocabulary

/// `mayfly drill`: what the operator could hand over now.
enum DrillCommand {
    private static let questions = ["all", "token", "room", "code", "address", "user", "printer"]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(Terminal.help(usage, [.state, .ratchetKey, .wrappingKey, .policy, .operatorListen]))
        }
        let configuration = try Configuration(
            words, keys: [.state, .ratchetKey, .wrappingKey, .policy, .operatorListen],
            switches: ["all", "json"],
            options: ["token", "room", "code", "address", "user", "printer", "report"])
        guard configuration.operands.isEmpty else { throw UsageError("drill accepts flags only: see --help") }
        let asked = questions.filter {
            configuration.has($0) || configuration.repeated[$0] != nil
        }
        guard asked.count <= 1 else {
            throw UsageError("drill answers one question at a time, not --\(asked.joined(separator: " --"))")
        }
        let question = asked.first ?? "all"
        let file = configuration.option("report")
        guard file == nil || question == "all" else {
            throw UsageError("--report covers everything. A report about one token or room would name it: remove the question")
        }
        // It would take the place of a device or a pipe.
        if let file, try file.isEmpty || File.status(file, followLinks: false).map({ $0.kind != .file }) ?? false {
            throw UsageError("--report must be a file's path: nothing was replaced")
        }
        let state = configuration.state
        var drill = DrillReport(question: question, now: Clock.wallMs)
        try ask(question, configuration, state, into: &drill)
        if question == "all" {
            drill.findings.append(await sockets(try configuration.address(.operatorListen, default: "127.0.0.1:8788")))
        }
        if let file {
            let key = try SigningKey.load(state.ledgerKey)
            let note = key.sign(statement: drill.statement(origin: key.verifierKey.name))
            let bytes = note.encoded
            try File.replaceDurably(file, bytes.span, mode: 0o644)
        } else {
            Terminal.out(configuration.has("json") ? drill.json : drill.text)
        }
    }

    /// Looks into the database, and lets go of it.
    private static func ask(
        _ question: String, _ configuration: Configuration, _ state: StateFolder, into drill: inout DrillReport
    ) throws {
        let policies = try PolicyCommand.inForce(configuration)
        let keys = try KeyRing.load(
            path: state.ratchetKey, wrapping: try WrappingKeySource(configuration)?.get(),
            // Whatever policies are in force: what opens, opens.
            longestLifeSeconds: KeyRing.largestLifeSeconds)
        guard File.exists(state.database) else {
            throw CommandFailed(
                "\(state.shown(state.database)) is missing: no broker has run on this state folder, so nothing is stored")
        }
        let look = Drill(keys: keys, store: try snapshot(state), limits: policies.rooms, now: drill.now)
        var value: [UInt8] = []
        defer { wipe(&value) }
        if let given = configuration.option(question) { value = try secret(given, question) }
        switch question {
        case "token":
            guard let token = try Secret(hexToken: value.span) else {
                throw UsageError("--token must be 2 to 200 hexadecimal digits")
            }
            drill.findings = try look.token(token)
        case "room":
            guard let room = try RoomID(base64url: value.span) else {
                throw UsageError("--room must be 43 characters of base64url, as the app received it")
            }
            drill.findings = try look.room(room)
        case "code": drill.findings = try look.code(value)
        case "address":
            drill.findings = [
                Drill.Finding(.addresses, held: 0, opens: 0, "never stored, never logged")
            ]
        case "user": drill.findings = try look.user(value)
        case "printer": drill.findings = try look.printer(value)
        default:
            drill.findings = try look.everything()
            drill.head = try look.head()
            drill.triesPerSecond = look.codesTriedPerSecond()
        }
        if let shortage = look.shortage {
            throw CommandFailed("the drill could not try everything, so it reports nothing: \(shortage)")
        }
    }

    private static func snapshot(_ state: StateFolder) throws -> StoreSnapshot {
        do {
            return try StoreSnapshot(path: state.database)
        } catch {
            guard error == .readOnly else { throw error }
            throw CommandFailed(
                "the state folder \(state.shown) is on a read-only file system, and the database can't be read there: "
                    + "SQLite makes files beside it. Mount it read-write, or copy the folder to a tmpfs (not to a disk: it contains keys) and name the copy in --state"
            )
        }
    }

    /// A flag's value, or the first line of standard input for `-`, so that it stands in no list of processes.
    private static func secret(_ given: String, _ question: String) throws -> [UInt8] {
        guard given != "-" else { return try line(question) }
        guard !given.isEmpty else { throw UsageError("--\(question) needs a value, or - to read it from standard input") }
        return Array(given.utf8)
    }

    private static func line(_ question: String) throws -> [UInt8] {
        let usage = "--\(question) - reads the \(question) from the first line of standard input, at most 256 bytes"
        guard var line = try Terminal.inputLine(limit: 256, usage) else { throw UsageError(usage) }
        // Written on another system: it belongs to the line's end, and would find nobody.
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        guard !line.isEmpty else { throw UsageError(usage) }
        return line
    }

    /// Rooms with an open socket, which only the running broker knows; it tells rounded.
    private static func sockets(_ address: SocketAddress) async -> Drill.Finding {
        let gauge = "mayfly_sockets "
        guard let answer = try? await WebSource("http://\(address)/").read("metrics"),
            let line = String(decoding: answer, as: UTF8.self).split(separator: "\n").first(where: { $0.hasPrefix(gauge) }),
            let count = Int(line.dropFirst(gauge.count))
        else { return Drill.Finding(.sockets, held: nil, opens: 0, "no broker answers at \(address)") }
        return Drill.Finding(.sockets, held: count, opens: count, "estimated; their room ids are in memory")
    }

    private static let usage = """
        usage: mayfly drill [--all] [--json] [--report FILE]
               mayfly drill --token HEX | --room ID | --code CODE | --address ADDRESS | --user USER | --printer PREFIX [--json]
          Shows what you could hand over now, and why no more, by trying to open everything in the state folder. It prints no secret.
          `-` instead of a value reads it from standard input, hidden from other processes.
          --all      everything (default)
          --token    what is stored about a push token
          --room     what a room id lets you find
          --code     what a join code lets you find
          --address  what is stored about an address
          --user     what a user's name lets you find
          --printer  what a printer's prefix lets you find
          --report   write everything, with rounded counts, as a note signed with the log's key, to publish beside the log
        """
}
