import API
import Broker
import HTTPServer
import Linux

/// SIGHUP: what can be read again is read again. What is no good changes nothing.
extension Service {
    func reload() async {
        let (certificate, authenticator, webhooks) = (settings.certificate, settings.authenticator, settings.webhooks)
        if certificate == nil, authenticator == nil, webhooks == nil, parts.renewal == nil {
            Terminal.log("SIGHUP: nothing to read again: no certificate, no key for JWTs or APNs, no webhook secret")
        }
        _ = await parts.renewal?.renew()
        if let certificate { await reload(certificate) }
        if let authenticator { await reload(authenticator) }
        if let webhooks { reload(webhooks) }
    }

    /// New connections see what the files say now.
    private func reload(_ files: CertificateFiles) async {
        do {
            await listeners.publicServer.use(try files.load(isRenewal: true))
            Terminal.log("certificate: new connections use \(files.certificate) as it is now")
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log("certificate: the present one stays in use. \(error)")
        }
    }

    /// From now on JWTs are verified by what the file says now.
    private func reload(_ authenticator: Authenticator) async {
        do {
            let (gone, before) = try authenticator.reload()
            let end = gone == 0 ? "" : "; \(gone) of \(before) previous keys removed: every /ws/sessions is closed"
            Terminal.log("jwt: \(authenticator.keysText)\(end)")
            if gone > 0 { await listeners.sessions?.endAll() }
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log("jwt: the present keys stay in use. \(error)")
        }
    }

    /// From now on webhooks are taken by the secrets that the file holds now.
    private func reload(_ webhooks: WebhookSettings) {
        do {
            try webhooks.reload()
            Terminal.log("webhooks: \(webhooks.secrets.count) secret\(webhooks.secrets.count == 1 ? "" : "s")")
            if let warning = webhooks.warning { Terminal.log(warning) }
        } catch {
            parts.broker.metrics.add(.alarms)
            Terminal.log("webhooks: the present secrets stay in use. \(error)")
        }
    }
}
