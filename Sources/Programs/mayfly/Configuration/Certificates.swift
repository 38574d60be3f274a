import Broker
import Linux
import Storage
import TLS

/// Expiries of all configured certificates. Keys have no expiry.
enum Certificates {
    /// - Parameter context: the public listener's. Nil without TLS.
    static func expiries(_ context: TLSContext?) -> [Expiry] {
        [
            certificate(
                .tlsCertificate, context?.certificateExpiryS,
                "Replace it and reload (restart if it is a credential of systemd), or apps will refuse it"),
            authorities(
                .tlsClientCA, context?.authoritiesExpiryS,
                "Replace them and reload (restart if they are a credential of systemd), or every client will be refused"),
        ].compactMap(\.self)
    }

    static func expiries(_ nodes: NodeSettings?) -> [Expiry] {
        let server = nodes?.server
        return [
            certificate(
                .nodeCertificate, server?.certificateExpiryS,
                "Replace it and restart this node while another one is ready, or it will get no keys"),
            authorities(
                .nodeCA, server?.authoritiesExpiryS,
                "Add another one at each node, restart one after the other, and then renew their certificates"),
        ].compactMap(\.self)
    }

    static func expiries(_ apns: APNsSettings) -> [Expiry] {
        var found = apns.apps.compactMap { app -> Expiry? in
            guard case .certificate(let certificate) = app.identity else { return nil }
            return Expiry(
                Setting.apnsCertificate.rawValue, "the APNs certificate of \(app.topic)", endS: certificate.expiryS,
                remedy:
                    "Get another one from Apple, replace it and reload (restart if it is a credential of systemd), or its pushes will fail"
            )
        }
        if case .authorities(let text) = apns.trust {
            // It was readable when a context was made with it.
            let end = try? CertificateExpiry.ofAuthorities(text.span)
            if let own = authorities(.apnsCA, end, "Replace them and reload, or every push will fail") { found.append(own) }
        }
        return found
    }

    /// Reads the files again, since libpq does so for each connection. A file that can't be read is left out: connections fail then.
    static func expiries(_ database: DatabaseAddress) -> [Expiry] {
        let files = try? database.certificateFiles { name in Environment.all.first { $0.name == name }?.value }
        let read = { (path: String?) in path.flatMap { try? File.read($0, limit: 1_048_576) } }
        var found: [Expiry] = []
        if let pem = read(files?.certificate), let end = try? CertificateExpiry.ofChain(pem.span) {
            found.append(
                Expiry(
                    "database-certificate", "the certificate for PostgreSQL (sslcert)", endS: end,
                    remedy: "Replace it, or the database will refuse this broker"))
        }
        if let pem = read(files?.authorities), let end = try? CertificateExpiry.ofAuthorities(pem.span) {
            found.append(
                Expiry(
                    "database-ca", "the last authority for PostgreSQL (sslrootcert)", endS: end,
                    remedy:
                        "Add the next one, and renew the server's certificate under it, or this broker will refuse the database"))
        }
        return found
    }

    private static func certificate(_ key: Setting, _ endS: UInt64?, _ remedy: String) -> Expiry? {
        endS.map { Expiry(key.rawValue, "the certificate of \(key.named)", endS: $0, remedy: remedy) }
    }

    private static func authorities(_ key: Setting, _ endS: UInt64?, _ remedy: String) -> Expiry? {
        endS.map { Expiry(key.rawValue, "the last authority of \(key.named)", endS: $0, remedy: remedy) }
    }

    /// The line of `mayfly check`.
    /// - Throws: `CheckFailed` if one has expired.
    static func check(_ expiries: [Expiry]) throws -> String {
        let now = Clock.wallMs / 1_000
        let findings = expiries.compactMap { $0.finding(nowS: now) }
        for finding in findings where !finding.hasExpired { Terminal.log(.warning, finding.text) }
        let expired = findings.filter(\.hasExpired).map(\.text)
        guard expired.isEmpty else { throw CheckFailed(expired.joined(separator: ". ")) }
        guard let first = expiries.map(\.endS).min() else { return "none is configured" }
        return "\(expiries.count == 1 ? "it" : "the first of \(expiries.count)") expires in \((first - now) / 86_400) days"
    }
}
