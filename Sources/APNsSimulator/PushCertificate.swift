import TLS

/// A provider's client certificate, as the other way to authenticate. Source: Apple, "Establishing a certificate-based connection to
/// APNs"; what the extensions mean is seen in Apple's certificates.
struct PushCertificate: Equatable {
    /// It holds now, comes from the authority, and says what it is for.
    let isValid: Bool
    /// Bundle ids: the user ids of its subject.
    let bundleIDs: [String]
    let environments: Set<APNsEnvironment>

    private static let marks: [(extension: String, environment: APNsEnvironment)] = [
        ("1.2.840.113635.100.6.3.1", .sandbox), ("1.2.840.113635.100.6.3.2", .production),
    ]

    init(_ certificate: PeerCertificate) {
        bundleIDs = certificate.userIDs
        isValid = certificate.fault == nil && !certificate.userIDs.isEmpty
        let marked = Self.marks.filter { certificate.extensions.contains($0.extension) }.map(\.environment)
        // One without either mark is taken for both (ours).
        environments = marked.isEmpty ? Set(APNsEnvironment.allCases) : Set(marked)
    }
}
