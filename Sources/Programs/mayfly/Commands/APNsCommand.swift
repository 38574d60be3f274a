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
    private static let keys: [Setting] = [.state, .database, .policy] + APNsSettings.keys

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
        case ("token", 0): try token()
        case ("jwt", 0): try configuration.has("verify") ? verify(configuration) : jwt(configuration)
        default:
            let hint = Spelling.hint(configuration.operands.first ?? "", subcommands.map(\.name))
            throw UsageError(
                "unknown apns command. Use check, explain [REASON...], jwt [--verify], send [TEMPLATE] or token; see --help\(hint)"
            )
        }
    }

    private static func jwt(_ configuration: Configuration) throws {
        let key = try APNsSettings.teamKey(configuration)
        var token = try ProviderToken(keyID: key.keyID, teamID: key.teamID, key: key.key)
        Terminal.out(try token.current(nowMs: Clock.wallMs, monotonicMs: Clock.monotonicMs).token)
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
        let reasons = try names.isEmpty ? PushReason.allCases : names.map { try reason($0) }
        if json { return Terminal.out("[" + reasons.map(self.json).joined(separator: ",\n") + "]") }
        if names.isEmpty {
            for reason in reasons { Terminal.out("\(reason.rawValue)\(status(reason)): \(reason.explanation.means)") }
        } else {
            Terminal.out(reasons.map { whole($0) }.joined(separator: "\n\n"))
        }
    }

    private static func reason(_ name: String) throws -> PushReason {
        let lower = name.lowercased()
        guard let reason = PushReason.allCases.first(where: { $0.rawValue.lowercased() == lower }) else {
            let hint = Spelling.hint(name, PushReason.allCases.map(\.rawValue))
            throw UsageError(
                "\(ShownWord(name)) is not a reason of Apple's or the log's: `mayfly apns explain` lists them\(hint)")
        }
        return reason
    }

    private static func status(_ reason: PushReason) -> String { reason.status.map { " (\($0))" } ?? "" }

    /// - Parameters:
    ///   - cause: of this outcome, if it is known.
    ///   - remedy: replaces the explanation's.
    static func whole(_ reason: PushReason, cause: String? = nil, remedy: String? = nil) -> String {
        let explanation = reason.explanation
        return """
            \(reason.rawValue)\(status(reason))\(cause.map { "\n  cause        \($0)" } ?? "")
              means        \(explanation.means)
              whose fault  \(explanation.fault.words)
              Mayfly       \(reason.does)
              do           \(remedy ?? explanation.remedy)
            """
    }

    private static func json(_ reason: PushReason) -> String {
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
