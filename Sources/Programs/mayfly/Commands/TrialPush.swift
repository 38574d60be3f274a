import Broker
import Courier
import EventLoop
import JSON
import Linux
import Policy
import Sealing
import Sodium
import Synchronization
import Vocabulary

/// `apns check` and `apns send`: pushes from the command line, without broker and log.
struct TrialPush {
    private let settings: APNsSettings
    let accounts: Accounts

    init(_ configuration: Configuration) throws {
        try self.init(APNsSettings(configuration), configuration.state)
        ProxySettings.warnOfVariables(configuration)
    }

    /// - Parameter state: the folder of a broker whose provider tokens are used again, since Apple limits new ones.
    init(_ settings: APNsSettings, _ state: StateFolder) throws {
        self.settings = settings
        accounts = Accounts(try settings.accounts(ProviderTokenMark(reading: state)))
    }

    /// Asks Apple about each app in each of its environments.
    func answers() async throws -> [(probe: Probe, outcome: Outcome, cause: String?)] {
        let deadlineMs = Clock.wallMs + Self.waitMs
        let receipts = try await deliver(try settings.probes.map { try $0.push(deadlineMs: deadlineMs) })
        return zip(settings.probes, receipts).map { (probe: $0, outcome: $1.outcome, cause: $1.cause) }
    }

    /// What to do about a reason. The explanation of `unreachable` is for brokers that push to Apple directly.
    func remedy(_ reason: PushReason) -> String {
        guard reason == .unreachable else { return reason.explanation.remedy }
        if settings.proxy != nil { return "check \(Setting.apnsProxy.named), its password, and what it allows" }
        if let endpoint = settings.endpoint {
            return "correct \(Setting.apnsEndpoint.named), which sends pushes to \(endpoint.authorityWithPort), or that server"
        }
        return
            "let this machine reach Apple's hosts at port \(settings.port), directly or through \(Setting.apnsProxy.named), and let nothing open TLS"
    }

    func check(json: Bool) async throws {
        var verdicts: Set<Verdict> = []
        var rows: [String] = []
        for (probe, outcome, cause) in try await answers() {
            let verdict = Self.verdict(outcome)
            if probe.isRequired { verdicts.insert(verdict) }
            if json {
                rows.append(
                    Terminal.json { json in
                        json.add("topic", probe.topic)
                        json.add("environment", "\(probe.environment)")
                        json.add("good", verdict == .accepted)
                        json.add("verdict", verdict.rawValue)
                        Self.write(outcome, cause, to: &json)
                    })
                continue
            }
            Terminal.out("\(probe.topic), \(probe.environment): \(verdict.rawValue)")
            Terminal.out(text(outcome, cause))
        }
        if json { Terminal.out("[" + rows.joined(separator: ",\n") + "]") }
        if verdicts.contains(.refused) {
            throw CheckFailed("Apple refuses pushes of this provider for some app or environment listed above")
        }
        if verdicts.contains(.unknown) {
            throw CheckFailed(
                "Apple did not check key, team and topic of some app or environment above. Fix the causes listed there, and run this again"
            )
        }
    }

    /// Apple's judgement of key, team and topic.
    enum Verdict: String {
        case accepted = "good"
        case refused = "bad"
        /// Apple wasn't reached, or answered something else.
        case unknown = "unknown"
    }

    /// An unknown token is no failure.
    static func verdict(_ outcome: Outcome) -> Verdict {
        switch outcome {
        case .delivered, .failed(_, .badDeviceToken, _), .failed(_, .unregistered, _), .failed(_, .expiredToken, _): .accepted
        // 429: too many requests or new provider tokens.
        case .failed(let status, _, _): (400..<500).contains(status) && status != 429 ? .refused : .unknown
        }
    }

    private func text(_ outcome: Outcome, _ cause: String?) -> String {
        let note = cause.map { "\n  \($0)" } ?? ""
        guard case .failed(_, let reason, _) = outcome else { return "  key, team and topic are accepted" + note }
        if Self.verdict(outcome) == .accepted {
            return "  key, team and topic are accepted (\(reason.rawValue), since the token doesn't exist)" + note
        }
        return Self.indented(ReasonText.whole(reason, cause: cause, remedy: remedy(reason)))
    }

    func send(_ name: String?, _ configuration: Configuration) async throws {
        let policies = try PolicyCommand.inForce(configuration)
        let name = name ?? Rooms.template
        guard let template = policies.template(name) else {
            let names = policies.all.map(\.name).joined(separator: ", ")
            let hint = Spelling.hint(name, policies.templates.keys.sorted())
            throw UsageError(
                "no policy in force (\(names)) has a template \(ShownWord(name)): `mayfly policy show` lists them. The token is read from standard input\(hint)"
            )
        }
        let fields = try Self.fields(configuration.repeated["field"] ?? [], template)
        var line = try Terminal.inputLine(limit: 8_192, "apns send reads a token from standard input") ?? []
        defer { wipe(&line) }
        guard let token = try Secret(hexToken: line.span) else {
            throw CheckFailed("not a device token: \(TokenShape(line).text)")
        }
        let rendered = try template.render(
            handle: .random(), fields: fields, nowMs: Clock.wallMs)
        let type = template.pushType
        let topic = settings.topic + type.topicSuffix
        // The same choice as a broker's if the app names no environment.
        let served = PushEnvironment.allCases.filter { accounts.account(for: topic, $0, type) != nil }
        guard let environment = served.contains(settings.environment) ? settings.environment : served.first else {
            throw CheckFailed(
                "no APNs key or certificate is configured for \(type.rawValue) pushes to \(topic), so nothing was sent")
        }
        let now = Clock.wallMs
        var push = Push(
            apnsID: Push.randomID(), address: PushAddress(.apns(AppID(bundleID: settings.topic), environment), token: token),
            type: type,
            priority: UInt8(clamping: rendered.priority), expirationS: template.expiration(nowMs: now, tokenExpiryMs: .max),
            payload: rendered.payload, sealedAtMs: now, deadlineMs: now + Self.waitMs)
        push.isTrial = true
        let (outcome, uniqueID, cause) = try await deliver([push])[0]
        let json = configuration.has("json")
        if json {
            Terminal.out(
                Terminal.json { json in
                    json.add("apns-id", push.apnsID)
                    json.add("apns-unique-id", orNull: uniqueID)
                    json.add("environment", "\(environment)")
                    json.add("topic", topic)
                    json.add("delivered", outcome == .delivered)
                    Self.write(outcome, cause, to: &json)
                })
        } else {
            Terminal.out("apns-id \(push.apnsID), \(environment). It is not recorded in the log")
            if let uniqueID { Terminal.out("apns-unique-id \(uniqueID): use it to find the delivery in Apple's console") }
        }
        guard case .failed(let status, let reason, _) = outcome else {
            if json { return }
            return Terminal.out(
                "delivered: Apple has it. Apple doesn't report whether the phone shows it; docs/why-no-push.md lists what can stop it"
            )
        }
        if !json { Terminal.out(Self.indented(ReasonText.whole(reason, cause: cause, remedy: remedy(reason)))) }
        throw CheckFailed("not delivered\(status == 0 ? "" : ", status \(status)")")
    }

    /// Parses `NAME=VALUE` by the kinds of the template's fields. Handles get random values.
    private static func fields(_ given: [String], _ template: Template) throws -> [String: FieldValue] {
        var values: [String: FieldValue] = [:]
        for word in given {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            guard parts.count == 2, let field = template.fields.first(where: { $0.name == parts[0] }) else {
                throw UsageError(
                    "--field must be NAME=VALUE, with a NAME of \(template.fields.map(\.name).joined(separator: ", "))"
                )
            }
            values[field.name] =
                switch field.kind {
                case .handle: throw UsageError("--field \(field.name): this field is a handle, and handles are random. Remove it")
                case .oneOf: .choice(parts[1])
                case .number: Int(parts[1]).map { .number($0) }
                case .flag: ["true": .flag(true), "false": .flag(false)][parts[1]]
                }
            guard values[field.name] != nil else {
                throw UsageError("--field \(field.name): the value doesn't match the field's kind")
            }
        }
        for field in template.fields where field.kind == .handle { values[field.name] = .handle(.random()) }
        let missing = template.fields.filter { values[$0.name] == nil }.map { "\($0.name) (\($0.kind.words))" }
        guard missing.isEmpty else {
            let all = missing.joined(separator: ", and for ")
            throw UsageError("the template \(template.name) needs a --field NAME=VALUE for \(all)")
        }
        return values
    }

    /// Longer than one attempt to connect, whose cause is printed: ten seconds, and two until the second round of a peer that hangs.
    private static let waitMs: UInt64 = 15_000

    /// `cause`: that of the outcome, if its reason doesn't tell it.
    private typealias Receipt = (outcome: Outcome, uniqueID: String?, cause: String?)

    /// The causes that one courier has reported.
    private final class Causes: Sendable {
        private let causes = Mutex<[String]>([])

        func add(_ cause: String) { causes.withLock { if !$0.contains(cause) { $0.append(cause) } } }
        var text: String? { causes.withLock { $0.isEmpty ? nil : $0.joined(separator: "; ") } }
    }

    /// Sends all at once, so that one that waits holds up no other. Each has a courier of its own, so that no cause is another's. Returns their receipts
    /// in the same order.
    private func deliver(_ pushes: [Push]) async throws -> [Receipt] {
        let loop = try EventLoop(name: "courier")
        try loop.start()
        let couriers = try pushes.map { _ in
            let causes = Causes()
            return (try Courier(loop: loop, settings.courier(accounts.all) { $0.cause.map(causes.add) }), causes)
        }
        let receipts = await withTaskGroup(of: (index: Int, receipt: Receipt).self) { group in
            for (index, push) in pushes.enumerated() {
                let (courier, causes) = couriers[index]
                group.addTask {
                    let (outcome, uniqueID) = await courier.sendTraced(push)
                    await courier.stop(withinMs: 1_000)
                    return (index, (outcome, uniqueID, causes.text))
                }
            }
            var receipts: [Int: Receipt] = [:]
            for await answer in group { receipts[answer.index] = answer.receipt }
            return receipts
        }
        loop.stop()
        return pushes.indices.map { receipts[$0]! }
    }

    private static func write(_ outcome: Outcome, _ cause: String?, to json: inout JSONWriter) {
        var (status, reason): (Int, PushReason?) = (200, nil)
        if case .failed(let failed, let why, _) = outcome { (status, reason) = (failed, why) }
        json.add("status", status)
        json.add("reason", orNull: reason?.rawValue)
        json.add("cause", orNull: cause)
    }

    private static func indented(_ text: String) -> String {
        text.split(separator: "\n").map { "  " + $0 }.joined(separator: "\n")
    }
}

extension Alarm {
    /// What an outcome's reason doesn't tell. Nil if it tells all.
    fileprivate var cause: String? {
        switch self {
        case .unreachable(_, _, let cause): cause
        case .clockAhead: description
        case .configuration, .noAccount, .purgesStopped, .givenUp, .unanswered: nil
        }
    }
}

/// Describes the shape of a device token, to explain why Apple refuses it. Contains no part of the token.
struct TokenShape {
    let isToken: Bool
    /// What the input looks like, and what to do.
    let text: String

    /// - Parameter bytes: the input without the newline.
    init(_ bytes: [UInt8]) {
        let isHex = !bytes.isEmpty && bytes.allSatisfy(Self.isHexDigit)
        switch bytes.count {
        case 0: (isToken, text) = (false, "the input is empty")
        case 2...200 where isHex && bytes.count % 2 == 0:
            let length = bytes.count / 2
            isToken = true
            text =
                switch length {
                case 32:
                    "a device token of 32 bytes, Apple's present length. Its environment, sandbox or production, is not visible"
                case 80: "a token of 80 bytes, like those of Xcode's simulated phones and of Live Activities"
                default: "a token of \(length) bytes. Lengths can vary, but device tokens presently have 32"
                }
        case _ where isHex && bytes.count % 2 == 1:
            (isToken, text) = (false, "hexadecimal with an odd number of digits. Check whether a digit was lost")
        case _ where isHex: (isToken, text) = (false, "hexadecimal for \(bytes.count / 2) bytes: a token must have 1 to 100")
        default: (isToken, text) = (false, Self.mistake(bytes))
        }
    }

    /// Describes common inputs that aren't tokens.
    private static func mistake(_ bytes: [UInt8]) -> String {
        let spaces = bytes.filter { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }.count
        if bytes.first == UInt8(ascii: "<"), bytes.last == UInt8(ascii: ">") {
            return "the description of a Data or NSData. Have the app write each byte as two hexadecimal digits"
        }
        if bytes.starts(with: Array("{length".utf8)) {
            return "the description of a Data. Have the app write each byte as two hexadecimal digits"
        }
        if bytes.starts(with: Array("0x".utf8)) { return "hexadecimal with the prefix 0x. Remove the prefix" }
        if bytes.starts(with: Array("ExponentPushToken[".utf8)) || bytes.starts(with: Array("ExpoPushToken[".utf8)) {
            return "a token of Expo's service. Use the device's own push token instead"
        }
        if bytes.contains(UInt8(ascii: ":")), bytes.count > 100 {
            return "probably a token of Firebase, Google's service. Use the APNs token"
        }
        if bytes.first == UInt8(ascii: "{") || bytes.first == UInt8(ascii: "\"") { return "JSON. Use only the value" }
        if spaces > 0, bytes.allSatisfy({ isHexDigit($0) || $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }) {
            return "hexadecimal with blanks. Remove the blanks"
        }
        if bytes.count % 4 == 0, (40...48).contains(bytes.count), bytes.allSatisfy(isBase64) {
            return "probably base64. Write the token in hexadecimal"
        }
        return "not hexadecimal. A token is an even number of digits 0 to 9 and a to f"
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool { Hex.value(byte) != nil }

    private static func isBase64(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5a).contains(byte) || (0x61...0x7a).contains(byte)
            || [0x2b, 0x2d, 0x2f, 0x3d, 0x5f].contains(byte)
    }
}
