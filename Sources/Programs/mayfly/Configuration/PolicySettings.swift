import API
import Broker
import Linux
import Policy
import Sealing

/// The policies in force, and the settings that they must agree with.
struct PolicySettings {
    /// Length of a window of the log in seconds.
    let resolution: UInt64
    let policies: Policies

    /// Call it before `WebhookSettings` removes the webhook's secret from the environment.
    init(_ configuration: Configuration) throws {
        resolution = UInt64(try configuration.number(.resolution))
        policies = try PolicyCommand.inForce(configuration)
        try check(configuration)
    }

    /// Refuses policies that contradict the other settings.
    private func check(_ configuration: Configuration) throws {
        guard policies.ledger.hourSeconds.isMultiple(of: resolution) else {
            let name = policies.all.first { $0.kind == .rooms }?.name ?? "rooms"
            let rule =
                "doesn't divide ledger.hourSeconds of the policy \(name), \(policies.ledger.hourSeconds). Batches must begin with a window"
            throw configuration.invalid(
                .resolution,
                configuration[.resolution] == nil
                    ? "is missing, and its default, \(resolution), \(rule). Set it to a divisor, e.g. 1"
                    : "\(resolution) \(rule). Choose a divisor, e.g. 1")
        }
        if !JWTSettings.areGiven(configuration), let policy = policies.all.first(where: { $0.kind != .rooms }) {
            throw configuration.invalid(
                .policy,
                "\(policy.name) is for apps with accounts, whose users have JWTs: set --jwt-algorithm and a key")
        }
        let calls = policies.audience(.calls)?.policy
        let hasWebhooks = WebhookSettings.areGiven(configuration)
        if !hasWebhooks, let calls {
            throw configuration.invalid(
                .policy,
                "\(calls.name) is for calls, which signed webhooks report: set \(Setting.webhookSecrets.named) or \(WebhookSettings.variable)"
            )
        }
        if hasWebhooks, calls == nil {
            let missing = [
                configuration[.jwtAlgorithm] == nil ? "set \(Setting.jwtAlgorithm.named) and a key" : nil,
                configuration[.policy] == nil ? nil : "add calls to \(Setting.policy.named)",
            ].compactMap(\.self).joined(separator: ", and ")
            Terminal.log(
                .warning,
                "webhook secrets are set, but no policy for calls is in force, so webhooks are refused. To accept them, \(missing)"
            )
        }
        let slots = Set(policies.templates.values.map(\.timing.slotMs)).filter { $0 > 0 && resolution * 1_000 % $0 != 0 }
        for slot in slots.sorted() {
            Terminal.log(
                .warning,
                "the log's windows of \(resolution) s cut the send slots of \(slot / 1_000) s. With Apple's records, the log then reveals more about when people knocked. Make --resolution a whole multiple"
            )
        }
    }
}

/// The secrets that sign call webhooks: from a file, the environment, or both.
struct WebhookSettings {
    /// A variable with the secret itself, named as in other servers. There is no flag, because all users can read command lines.
    static let variable = "COMETCHAT_WEBHOOK_SECRET"

    let secrets: WebhookSecrets
    private let file: GivenFile?

    /// Returns whether any are configured. Reads no file.
    static func areGiven(_ configuration: Configuration) -> Bool {
        configuration[.webhookSecrets] != nil || Environment.has(variable)
    }

    /// Reads the secrets and removes the variable from the environment. Warns of short ones. Returns nil if none are configured.
    init?(_ configuration: Configuration) throws {
        let own: Secret?
        do throws(WebhookSecretsError) {
            own = try Environment.take(Self.variable) { bytes throws(WebhookSecretsError) in try WebhookSecrets.secret(bytes) }
        } catch { throw UsageError("\(Self.variable): \(error)") }
        file = try configuration.file(.webhookSecrets)
        guard own != nil || file != nil else { return nil }
        do throws(WebhookSecretsError) {
            secrets = try WebhookSecrets(own: own, path: file?.path)
        } catch { throw Self.failure(file, error) }
        if let warning { Terminal.log(.warning, warning) }
    }

    func reload() throws {
        do throws(WebhookSecretsError) {
            try secrets.reload()
        } catch { throw Self.failure(file, error) }
    }

    /// A warning for the log about accepted secrets that are too short to be safe. Nil if there are none.
    var warning: String? {
        guard secrets.guessable > 0 else { return nil }
        return "\(secrets.guessable) of \(secrets.count) webhook secrets "
            + "\(secrets.guessable == 1 ? "has" : "have") fewer than \(WebhookSecrets.safe) bytes. Whoever sees one webhook can guess the secret and ring phones. Make one with `openssl rand -hex 32`"
    }

    private static func failure(_ file: GivenFile?, _ error: WebhookSecretsError) -> CommandFailed {
        file?.failure("\(error)") ?? CommandFailed("\(variable): \(error)")
    }
}
