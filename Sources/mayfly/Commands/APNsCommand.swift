import APNsSimulator
import Broker
import Courier
import JSON
import Ledger
import Linux
import Policy
import Sealing
import Sodium
import Storage
import TLS
import Vocabulary

/// `mayfly apns`: tools for push credentials and tokens. Tokens and JWTs come from standard input, which other processes can't read.
enum APNsCommand {
    private static let keys: [Key] = [.state, .database, .ratchetKey, .wrappingKey, .policy] + APNsSettings.keys

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "apns", subcommands)) }
        let configuration = try Configuration(
            words, keys: keys, switches: ["json", "verify"], options: ["field"])
        let operands = configuration.operands.dropFirst()
        if configuration.repeated["field"] != nil, configuration.operands.first != "send" {
            throw UsageError("--field is an option of `apns send` only")
        }
        if configuration.has("verify"), configuration.operands.first != "jwt" {
            throw UsageError("--verify is an option of `apns jwt` only")
        }
        switch (configuration.operands.first, operands.count) {
        case ("check", 0): try await TrialPush(configuration).check(json: configuration.has("json"))
        case ("send", 0...1): try await TrialPush(configuration).send(operands.first, configuration)
        case ("explain", 0...): try ReasonText.explain(Array(operands), json: configuration.has("json"))
        case ("find", 1): try await DeliveryCommand.find(operands.first ?? "", configuration)
        case ("token", 0): try token()
        case ("jwt", 0): try configuration.has("verify") ? verify(configuration) : jwt(configuration)
        default:
            throw UsageError(
                "unknown apns command. Use check, explain [REASON...], find APNS-ID, jwt [--verify], send [TEMPLATE] or token; see --help"
            )
        }
    }

    private static func jwt(_ configuration: Configuration) throws {
        let key = try APNsSettings.teamKey(configuration)
        var token = try ProviderToken(keyID: key.keyID, teamID: key.teamID, key: key.key)
        Terminal.out(try token.current(nowMs: Clock.wallMs, monotonicMs: Clock.monotonicMs).jwt)
    }

    private static func verify(_ configuration: Configuration) throws {
        let usage = "apns jwt --verify reads a JWT from the first line of standard input"
        guard var line = try Terminal.inputLine(limit: 4_096, usage) else { throw UsageError(usage) }
        defer { wipe(&line) }
        var text = Array(providerToken(in: line))
        defer { wipe(&text) }
        guard !text.isEmpty else { throw UsageError(usage) }
        var key: ES256.PublicKey?
        if configuration[.apnsKeyPath] != nil {
            let pem = try APNsApp.signingKey(try configuration.requiredFile(.apnsKeyPath)).publicKeyPEM()
            key = try ES256.PublicKey(pem: pem.span)
        }
        let report = ProviderTokenReport(
            text, key: key, keyID: configuration[.apnsKeyID], teamID: configuration[.apnsTeamID], nowS: Clock.wallMs / 1_000)
        for finding in report.findings { Terminal.out("\(finding.isGood ? "good" : "bad ")  \(finding.text)") }
        guard report.isGood else { throw CheckFailed("Apple would refuse this provider token") }
    }

    /// Removes blanks around a provider token, and `bearer` before it in any case.
    private static func providerToken(in line: [UInt8]) -> ArraySlice<UInt8> {
        let isBlank = { (byte: UInt8) in byte == 0x20 || byte == 0x09 || byte == 0x0d }
        let end = line.lastIndex { !isBlank($0) } ?? -1
        let rest = line[...end].drop(while: isBlank)
        let scheme = rest.prefix { !isBlank($0) }
        guard scheme.count < rest.count, scheme.elementsEqual("bearer".utf8, by: { $0 | 0x20 == $1 }) else { return rest }
        return rest[scheme.endIndex...].drop(while: isBlank)
    }

    private static func token() throws {
        let usage = "apns token reads a token from the first line of standard input"
        guard var text = try Terminal.inputLine(limit: 8_192, usage) else { throw UsageError(usage) }
        defer { wipe(&text) }
        let shape = TokenShape(text)
        guard shape.isToken else { throw CheckFailed("not a device token: \(shape.text)") }
        Terminal.out(shape.text)
    }

    private static let subcommands = [
        Subcommand(
            "check", ["[FLAGS] [--json]"],
            "check that Apple accepts each app's key and topic in each environment, by a background push to a token that doesn't exist",
            keys: [.state, .database] + APNsSettings.keys),
        Subcommand(
            "send", ["[TEMPLATE] [--field NAME=VALUE]... [--json]"],
            "send a template to the token on standard input; nothing is recorded. TEMPLATE: one of those that\n`mayfly policy show` lists for the policies of --policy; default: peer_waiting",
            flags: [("--field", "the value of one of the template's fields; handles are random")],
            keys: [.state, .database, .policy] + APNsSettings.keys),
        Subcommand(
            "explain", ["[REASON...] [--json]"],
            "explain a reason: what it means, whose fault it is, what Mayfly does and what you can do"),
        Subcommand(
            "find", ["APNS-ID [--json]"],
            "show the outcome of a push by its apns-id. This works for seven to twelve minutes, until the key for the search is destroyed.\nAn apns-unique-id can't be looked up: Mayfly doesn't store them",
            keys: [.state, .database, .ratchetKey, .wrappingKey, .policy]),
        Subcommand("token", [""], "describe the shape of the token on standard input"),
        Subcommand(
            "jwt", ["[--verify]"],
            "print a provider token, a secret that is valid for an hour. --verify: check the one on standard input",
            keys: [.apnsKeyPath, .apnsKeyID, .apnsTeamID]),
    ]
}

/// `mayfly apns explain`: explains a reason of Apple, the courier or the log.
enum ReasonText {
    static func explain(_ names: [String], json: Bool) throws {
        let reasons = try names.isEmpty ? APNsReason.allCases : names.map { try reason($0) }
        if json { return Terminal.out("[" + reasons.map(self.json).joined(separator: ",\n") + "]") }
        if names.isEmpty {
            for reason in reasons { Terminal.out("\(reason.rawValue)\(status(reason)): \(reason.explanation.means)") }
        } else {
            Terminal.out(reasons.map(whole).joined(separator: "\n\n"))
        }
    }

    private static func reason(_ name: String) throws -> APNsReason {
        let lower = name.lowercased()
        guard let reason = APNsReason.allCases.first(where: { $0.rawValue.lowercased() == lower }) else {
            throw UsageError(
                "\(ShownWord(name)) is not a reason of Apple's or the log's: `mayfly apns explain` lists them")
        }
        return reason
    }

    private static func status(_ reason: APNsReason) -> String { reason.status.map { " (\($0))" } ?? "" }

    static func whole(_ reason: APNsReason) -> String {
        let explanation = reason.explanation
        return """
            \(reason.rawValue)\(status(reason))
              means        \(explanation.means)
              whose fault  \(explanation.fault.words)
              Mayfly       \(reason.does)
              do           \(explanation.remedy)
            """
    }

    private static func json(_ reason: APNsReason) -> String {
        let explanation = reason.explanation
        return Terminal.json { json in
            json.add("reason", reason.rawValue)
            json.add("status", orNull: reason.status)
            json.add("means", explanation.means)
            json.add("fault", explanation.fault.rawValue)
            json.add("does", reason.does)
            json.add("remedy", explanation.remedy)
        }
    }
}

/// `mayfly apns find`: finds the outcome of a push by its `apns-id`.
private enum DeliveryCommand {
    static func find(_ apnsID: String, _ configuration: Configuration) async throws {
        let state = try configuration.state
        let keys = try state.loadKeys(
            try WrappingKeySource(configuration)?.get(),
            longestLifeSeconds: UInt64(try PolicyCommand.inForce(configuration).longestLifeSeconds))
        guard let search = DeliverySearch(apnsID, keys: keys) else {
            throw UsageError("the apns-id is malformed. It must be a UUID: 32 hexadecimal digits in five groups")
        }
        let isBrokers = isOfBroker(apnsID)
        let entries = isBrokers ? try await found(search, state) : []
        let json = configuration.has("json")
        guard !entries.isEmpty else {
            if json { Terminal.out("[]") }
            throw CheckFailed(isBrokers ? notFound : foreign)
        }
        if json {
            return Terminal.out("[" + entries.map { String(decoding: $0.encoded, as: UTF8.self) }.joined(separator: ",") + "]")
        }
        for entry in entries { Terminal.out(Self.line(entry)) }
        guard entries.count == 1 else { return }
        Terminal.out("the outcome is not published yet: the push is under way, or the next window will contain it")
    }

    /// One entry as text. Its time is the start of its window.
    private static func line(_ entry: Entry) -> String {
        let at = Timestamp.text(entry.atMs)
        return switch entry.op {
        case .tokenOpened(_, let job, let template): "\(at)  accepted: template \(template), job \(job)"
        case .pushDelivered(_, let status): "\(at)  delivered: Apple has it (status \(status))"
        case .pushFailed(_, let status, let reason):
            "\(at)  not delivered: \(reason.rawValue) (status \(status)). `mayfly apns explain \(reason.rawValue)` explains it"
        default: entry.sentence
        }
    }

    /// Returns the job's entries, oldest first.
    private static func found(_ search: DeliverySearch, _ state: StateFolder) async throws -> [Entry] {
        let key = try SigningKey.load(state.ledgerKey).verifierKey
        let source = FolderSource(state.ledger)
        guard let bytes = try await source.read("checkpoint"), let head = SignedNote(bytes)?.checkpoint(signedBy: key) else {
            throw CommandFailed("\(state.shown(state.ledger)) has no checkpoint signed by this state folder's key")
        }
        let now = Clock.wallMs
        var outcomes: [JobID: Entry] = [:]
        do throws(VerificationFailure) {
            var tree = try await SignedTree(source, head: head)
            var bundle = tree.bundles
            while bundle > 0 {
                bundle -= 1
                for text in try await tree.canonicalEntries(bundle: bundle).reversed() {
                    guard let entry = try? Entry(canonical: Array(text.utf8).span) else { continue }
                    if entry.atMs < search.earliestMs { return [] }
                    switch entry.op {
                    case .pushDelivered(let job, _), .pushFailed(let job, _, _): outcomes[job] = entry
                    case .tokenOpened(_, let job, _):
                        if search.isOf(job, nowMs: now) { return [entry] + (outcomes[job].map { [$0] } ?? []) }
                    default: break
                    }
                }
            }
        } catch { throw CheckFailed("bad: \(error)") }
        return []
    }

    /// Returns whether a UUID can be the `apns-id` of a broker's push. Those have version 8.
    private static func isOfBroker(_ uuid: String) -> Bool { uuid.dropFirst(14).first == "8" }

    private static let foreign = """
        this is not the apns-id of a broker's push: those have an 8 after the second hyphen. Mayfly doesn't store apns-unique-ids, Apple's ids of \
        deliveries. Look one up in Apple's Push Notifications Console, or find the push by its apns-id, which works for seven to twelve minutes. \
        Pushes of `mayfly apns send` are not recorded.
        """

    private static let notFound = """
        no recent push has this apns-id. A push can be found until the key of its apns-id is destroyed, seven to \
        twelve minutes after it was accepted. A push of the log's present window can be found once that window is published.
        """
}
