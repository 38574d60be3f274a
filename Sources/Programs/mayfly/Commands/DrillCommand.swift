import Broker
import EventLoop
import JSON
import Ledger
import Linux
import Policy
import Sealing
import Sodium
import Storage
import Vocabulary
import WebPush

/// `mayfly drill`: shows what the operator could hand over now.
enum DrillCommand {
    private static let questions = ["all", "token", "room", "code", "address", "user", "printer"]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(Terminal.help(usage, [.state, .database, .ratchetKey, .wrappingKey, .policy, .operatorListen]))
        }
        let configuration = try Configuration(
            words, keys: [.state, .database, .ratchetKey, .wrappingKey, .policy, .operatorListen],
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
        let file = try configuration.option("report")
        guard file == nil || question == "all" else {
            throw UsageError("--report covers everything. A report about one token or room would name it: remove the question")
        }
        // Writing replaces the file, which must not be a device or a pipe.
        if let file, try file.isEmpty || File.status(file, followLinks: false).map({ $0.kind != .file }) ?? false {
            throw UsageError("--report must be a file's path: nothing was replaced")
        }
        let state = try configuration.state
        var drill = DrillReport(question: question, now: Clock.wallMs)
        Progress.show("opening what is stored")
        try ask(question, configuration, state, into: &drill)
        if question == "all" {
            drill.findings.append(await sockets(try configuration.address(.operatorListen)))
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

    /// Answers one question from the database, which is closed afterwards.
    private static func ask(
        _ question: String, _ configuration: Configuration, _ state: StateFolder, into drill: inout DrillReport
    ) throws {
        let policies = try PolicyCommand.inForce(configuration)
        let keys = try state.loadKeys(
            try WrappingKeySource(configuration)?.get(),
            // The policies in force don't limit what can be opened.
            longestLifeSeconds: KeyRing.largestLifeSeconds)
        guard try state.database.exists() else {
            throw CommandFailed(
                "\(state.shownDatabase) is missing: no broker has run on this state folder, so nothing is stored")
        }
        let search = Drill(keys: keys, store: try snapshot(state), limits: policies.rooms, now: drill.now)
        var value: [UInt8] = []
        defer { wipe(&value) }
        if let given = try configuration.option(question) { value = try secret(given, question) }
        switch question {
        case "token": drill.findings = try search.token(try device(value))
        case "room":
            guard let room = try RoomID(base64url: value.span) else {
                throw UsageError("--room must be 43 characters of base64url, as the app received it")
            }
            drill.findings = try search.room(room)
        case "code": drill.findings = try search.code(value)
        case "address":
            drill.findings = [
                Drill.Finding(.addresses, held: 0, opens: 0, "never stored, never logged")
            ]
        case "user": drill.findings = try search.user(value)
        case "printer": drill.findings = try search.printer(value)
        default:
            drill.findings = try search.everything()
            drill.head = try search.head()
            drill.triesPerSecond = search.codesTriedPerSecond()
        }
        if let shortage = search.shortage {
            throw CommandFailed("the drill could not try everything, so it reports nothing: \(shortage)")
        }
    }

    /// Reads a token of Apple's, or a browser's subscription as JSON or as its endpoint alone.
    private static func device(_ given: [UInt8]) throws -> DeviceName {
        if let token = try Secret(hexToken: given.span) { return DeviceName(token: token) }
        let object = JSONObject(given.span)
        // Whatever is wrong with the JSON, the text is then read as an endpoint, which refuses it.
        let member = try? object?.bytes("endpoint", in: given.span)
        let endpoint = member ?? given
        do {
            return try Subscription.device(endpoint: endpoint.span)
        } catch is PushEndpoint.Fault {
            throw UsageError("--token must be 2 to 200 hexadecimal digits, or a browser's subscription: its JSON or its endpoint")
        }
    }

    private static func snapshot(_ state: StateFolder) throws -> StoreSnapshot {
        do {
            return try StoreSnapshot(state.database)
        } catch {
            guard error == .readOnly else { throw error }
            throw CommandFailed(
                "the state folder \(state.shown) is on a read-only file system, and the database can't be read there: "
                    + "SQLite makes files beside it. Mount it read-write, or copy the folder to a tmpfs (not to a disk: it contains keys) and name the copy in --state"
            )
        }
    }

    /// Returns a flag's value, or the first line of standard input for `-`. The list of processes doesn't show standard input.
    private static func secret(_ given: String, _ question: String) throws -> [UInt8] {
        guard given != "-" else { return try line(question) }
        guard !given.isEmpty else { throw UsageError("--\(question) needs a value, or - to read it from standard input") }
        return Array(given.utf8)
    }

    private static func line(_ question: String) throws -> [UInt8] {
        // A subscription is longer than all else.
        let longestLine = question == "token" ? 2_048 : 256
        let usage = "--\(question) - reads the \(question) from the first line of standard input, at most \(longestLine) bytes"
        guard var line = try Terminal.inputLine(limit: longestLine, usage) else { throw UsageError(usage) }
        // Lines of other systems end with CRLF.
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        guard !line.isEmpty else { throw UsageError(usage) }
        return line
    }

    /// Asks the running broker for the rounded number of rooms with an open socket.
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
               mayfly drill --token TOKEN | --room ID | --code CODE | --address ADDRESS | --user USER | --printer PREFIX [--json]
          Shows what you could hand over now, and why no more, by trying to open everything in the state folder. It prints no secret.
          `-` instead of a value reads it from standard input, hidden from other processes.
          --all      everything (default)
          --token    what is stored about a push token, or a browser's subscription: its JSON or its endpoint
          --room     what a room id lets you find
          --code     what a join code lets you find
          --address  what is stored about an address
          --user     what a user's name lets you find
          --printer  what a printer's prefix lets you find
          --report   write everything, with rounded counts, as a note signed with the log's key, to publish beside the log
        """
}

/// The findings of `mayfly drill`, as text, as JSON and as a statement to publish.
private struct DrillReport {
    let question: String
    /// Unix milliseconds.
    let now: UInt64
    var findings: [Drill.Finding] = []
    /// The log's last signed head.
    var head: LogHead?
    /// How many join codes can be tried per second.
    var triesPerSecond: Int?

    /// At most 24 lines of 79 columns.
    var text: String {
        var lines = ["What could be handed over at \(Timestamp.text(now)) (question: \(question)):"]
        lines.append(Self.row("", "held", "opens", "because"))
        for finding in findings {
            let row = Self.row(
                Self.words(finding.subject), finding.held.map { String($0) } ?? "?", String(finding.opens), finding.because)
            let until = finding.opens > 0 ? finding.until.map { "; until \(Self.minute($0))" } ?? "" : ""
            // `json` always contains the time.
            lines.append(row.count + until.count > 79 ? row : row + until)
        }
        if let triesPerSecond {
            let sixDigits = (1_000_000 + triesPerSecond - 1) / triesPerSecond
            lines.append("Short join codes: \(triesPerSecond) tries a second here; six digits fall in \(sixDigits) s.")
        }
        if let until = findings.compactMap(\.until).max() {
            lines.append("After \(Self.minute(until)) nothing of this opens, if a broker runs until then.")
        }
        lines.append("Not examined: the broker's memory, push services' records, a proxy's logs.")
        return lines.joined(separator: "\n")
    }

    /// One object; `until` in RFC 3339.
    var json: String {
        Terminal.json { json in
            json.add("at", timeMs: now)
            json.add("question", question)
            if let triesPerSecond { json.add("codesTriedPerSecond", triesPerSecond) }
            json.add("findings", objects: findings) { json, finding in
                json.add("subject", finding.subject.rawValue)
                json.add("held", orNull: finding.held)
                json.add("opens", finding.opens)
                json.add("because", finding.because)
                json.add("until", orNull: finding.until.map(Timestamp.text))
            }
        }
    }

    /// The text to sign and publish. Counts are rounded like metrics. The first two lines can't be those of a checkpoint.
    func statement(origin: String) -> String {
        var text = "mayfly drill\n\(Timestamp.text(now))\n\(origin)\nsize \(head?.size ?? 0)\n"
        if let triesPerSecond { text += "codes tried a second: \(Metrics.rounded(triesPerSecond))\n" }
        text += "subject, held, opens (rounded; 5 is 1 to 9), because\n"
        for finding in findings {
            let held = finding.held.map { String(Metrics.rounded($0)) } ?? "?"
            text += "\(finding.subject.rawValue) \(held) \(Metrics.rounded(finding.opens)) \(finding.because)\n"
        }
        return text
    }

    private static func row(_ name: String, _ held: String, _ opens: String, _ because: String) -> String {
        func padding(_ text: String, _ width: Int) -> String { String(repeating: " ", count: max(1, width - text.count)) }
        return name + padding(name + held, 27) + held + padding(opens, 8) + opens + "  " + because
    }

    private static func words(_ subject: Drill.Finding.Subject) -> String {
        switch subject {
        case .roomTokens: "tokens of rooms"
        case .queuedTokens: "tokens under way"
        case .audienceTokens: "tokens of audiences"
        case .roomIDs: "room ids"
        case .joinCodes: "join codes"
        case .shortCodes: "short join codes"
        case .acceptAnswers: "answers to accepts"
        case .members: "members of rooms"
        case .pairs: "who shared a room"
        case .ends: "ends of rooms"
        case .knocks: "last knocks"
        case .addresses: "addresses"
        case .users: "users"
        case .approvals: "approvals"
        case .names: "activities' names"
        case .sessions: "sessions and runs"
        case .seen: "named events, calls"
        case .entries: "waiting entries"
        case .sockets: "open sockets"
        case .room: "the room"
        case .creatorToken: "creator's token"
        case .joinerToken: "joiner's token"
        case .refs: "refs in the log"
        case .devices: "the user's devices"
        case .activities: "Live Activities"
        case .phones: "phones that ring"
        case .monitors: "printers' devices"
        case .run: "the printer's run"
        }
    }

    /// UTC, e.g. `2026-01-02 03:04`.
    private static func minute(_ ms: UInt64) -> String { String(Timestamp.text(ms).prefix(16).replacing("T", with: " ")) }
}
