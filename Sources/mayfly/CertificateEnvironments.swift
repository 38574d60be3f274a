import Courier
import TLS

/// Where Apple takes pushes by a certificate; elsewhere it answers each with `BadCertificateEnvironment`.
enum CertificateEnvironments {
    /// Apple's marks of what a certificate is for, seen in its certificates.
    private static let marks: [(extension: String, environment: Push.Environment)] = [
        ("1.2.840.113635.100.6.3.1", .sandbox), ("1.2.840.113635.100.6.3.2", .production),
    ]

    /// Both where it has neither mark.
    static func of(_ certificate: ClientCertificate) -> Set<Push.Environment> {
        let marked = marks.filter { certificate.extensions.contains($0.extension) }.map(\.environment)
        return Set(marked.isEmpty ? Push.Environment.allCases : marked)
    }

    struct Lacking: Error, CustomStringConvertible {
        let description: String
    }

    /// - Throws: what it is for instead, if it is not for all of `environments`.
    static func check(_ certificate: ClientCertificate, _ environments: Set<Push.Environment>) throws(Lacking) {
        let own = of(certificate)
        guard !environments.isSubset(of: own) else { return }
        let only = own == [.sandbox] ? "the sandbox" : "production"
        throw Lacking(
            description:
                "the certificate is for \(only) only, and Apple refuses other pushes with it. Use one for both environments")
    }
}
