import API
import Linux
import Sealing

/// What webhooks of calls are signed by: a file's secrets, one in the environment, or both.
struct WebhookSettings {
    /// The name that other servers use for the secret itself. No flag has it: command lines are for all to read.
    static let variable = "COMETCHAT_WEBHOOK_SECRET"

    let secrets: WebhookSecrets
    private let file: GivenFile?

    /// Whether there are any, before they are read.
    static func areGiven(_ configuration: Configuration) -> Bool {
        configuration[.webhookSecrets] != nil || Environment.has(variable)
    }

    /// Reads them; the environment has its own no longer then. Nil where none is given.
    init?(_ configuration: Configuration) throws {
        let own: Secret?
        do throws(WebhookSecretsError) {
            own = try Environment.take(Self.variable) { bytes throws(WebhookSecretsError) in try WebhookSecrets.secret(bytes) }
        } catch { throw CommandFailed("\(Self.variable): \(error)") }
        file = configuration.file(.webhookSecrets)
        guard own != nil || file != nil else { return nil }
        do throws(WebhookSecretsError) {
            secrets = try WebhookSecrets(own: own, path: file?.path)
        } catch { throw Self.failure(file, error) }
    }

    /// Reads the file again.
    func reload() throws {
        do throws(WebhookSecretsError) {
            try secrets.reload()
        } catch { throw Self.failure(file, error) }
    }

    /// What the log says of secrets that are taken, and not safe.
    var warning: String? {
        guard secrets.guessable > 0 else { return nil }
        return "warning: \(secrets.guessable) of \(secrets.count) webhook secrets "
            + "\(secrets.guessable == 1 ? "has" : "have") fewer than \(WebhookSecrets.safe) bytes. Whoever sees one webhook can guess the secret and ring phones. Make one with `openssl rand -hex 32`"
    }

    private static func failure(_ file: GivenFile?, _ error: WebhookSecretsError) -> CommandFailed {
        file?.failure("\(error)") ?? CommandFailed("\(variable): \(error)")
    }
}
