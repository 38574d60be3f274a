import Broker
import Courier
import EventLoop
import JSON
import Linux
import Policy
import Sealing
import Sodium
import Vocabulary

/// One push from the command line, past broker and log: `apns check` and `apns send`.
struct TrialPush {
    private let settings: APNsSettings
    private let accounts: Accounts

    init(_ configuration: Configuration) async throws {
        settings = try APNsSettings(configuration)
        accounts = Accounts(try settings.accounts(ProviderTokenMark(reading: configuration.state)))
    }

    // MARK: check

    func check(json: Bool) async throws {
        var bad = 0
        var rows: [String] = []
        for probe in settings.probes {
            let outcome = try await deliver(try probe.push(deadlineMs: Clock.wallMs + Self.waitMs)).outcome
            let isGood = Self.isTaken(outcome)
            if !isGood, probe.isRequired { bad += 1 }
            if json {
                rows.append(
                    Terminal.json { json in
                        json.add("topic", probe.topic)
                        json.add("environment", "\(probe.environment)")
                        json.add("good", isGood)
                        Self.write(outcome, to: &json)
                    })
                continue
            }
            Terminal.out("\(probe.topic), \(probe.environment): \(isGood ? "good" : "bad")")
            Terminal.out(Self.verdict(outcome))
        }
        if json { Terminal.out("[" + rows.joined(separator: ",\n") + "]") }
        guard bad == 0 else {
            throw CheckFailed("Apple refuses pushes of this provider for some app or environment listed above")
        }
    }

    private static func isTaken(_ outcome: Outcome) -> Bool {
        switch outcome {
        case .delivered, .failed(_, .badDeviceToken, _), .failed(_, .unregistered, _), .failed(_, .expiredToken, _): true
        case .failed: false
        }
    }

    private static func verdict(_ outcome: Outcome) -> String {
        if case .failed(_, let reason, _) = outcome {
            if isTaken(outcome) {
                return "  key, team and topic are accepted (\(reason.rawValue), since the token doesn't exist)"
            }
            return indented(ReasonText.whole(reason))
        }
        return "  key, team and topic are accepted"
    }

    // MARK: send

    func send(_ name: String?, _ configuration: Configuration) async throws {
        let policies = try PolicyCommand.inForce(configuration)
        let name = name ?? Rooms.template
        guard let template = policies.template(name) else {
            let names = policies.all.map(\.name).joined(separator: ", ")
            throw UsageError(
                "no policy in force (\(names)) has a template \(ShownWord(name)): `mayfly policy show` lists them. The token is read from standard input"
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
        // As a broker does, whose app did not say.
        let served = PushEnvironment.allCases.filter { accounts.account(for: topic, $0, type) != nil }
        guard let environment = served.contains(settings.environment) ? settings.environment : served.first else {
            throw CheckFailed(
                "no APNs key or certificate is configured for \(type.rawValue) pushes to \(topic), so nothing was sent")
        }
        let now = Clock.wallMs
        let push = Push(
            apnsID: Push.randomID(), token: token, environment: environment, topic: topic, type: type,
            priority: UInt8(clamping: rendered.priority), expirationS: template.expiration(nowMs: now, tokenExpiryMs: .max),
            payload: rendered.payload, sealedAtMs: now, deadlineMs: now + Self.waitMs)
        let (outcome, uniqueID) = try await deliver(push)
        let json = configuration.has("json")
        if json {
            Terminal.out(
                Terminal.json { json in
                    json.add("apns-id", push.apnsID)
                    json.add("apns-unique-id", orNull: uniqueID)
                    json.add("environment", "\(environment)")
                    json.add("topic", topic)
                    json.add("delivered", outcome == .delivered)
                    Self.write(outcome, to: &json)
                })
        } else {
            Terminal.out("apns-id \(push.apnsID), \(environment). It is not recorded, so `mayfly apns find` can't find it")
            if let uniqueID { Terminal.out("apns-unique-id \(uniqueID): use it to find the delivery in Apple's console") }
        }
        guard case .failed(let status, let reason, _) = outcome else {
            if json { return }
            return Terminal.out(
                "delivered: Apple has it. Apple doesn't report whether the phone shows it; docs/why-no-push.md lists what can stop it"
            )
        }
        if !json { Terminal.out(Self.indented(ReasonText.whole(reason))) }
        throw CheckFailed("not delivered\(status == 0 ? "" : ", status \(status)")")
    }

    /// `NAME=VALUE`, each read as the template's field of that name is; handles are made up.
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

    // MARK: Both

    private static let waitMs: UInt64 = 10_000

    private func deliver(_ push: Push) async throws -> (outcome: Outcome, uniqueID: String?) {
        let loop = try EventLoop(name: "courier")
        try loop.start()
        let courier = try Courier(loop: loop, settings.courier(accounts.all) { Terminal.error("\($0)") })
        let receipt = await courier.sendTraced(push)
        await courier.stop(withinMs: 1_000)
        loop.stop()
        return receipt
    }

    private static func write(_ outcome: Outcome, to json: inout JSONWriter) {
        var (status, reason): (Int, APNsReason?) = (200, nil)
        if case .failed(let failed, let why, _) = outcome { (status, reason) = (failed, why) }
        json.add("status", status)
        json.add("reason", orNull: reason?.rawValue)
    }

    private static func indented(_ text: String) -> String {
        text.split(separator: "\n").map { "  " + $0 }.joined(separator: "\n")
    }
}
