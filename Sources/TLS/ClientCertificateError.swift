/// What is wrong with a client's certificate.
public enum ClientCertificateError: Error, Sendable, Equatable {
    case noCertificate
    case noKey
    case badKey
    case needsPassphrase
    case wrongPassphrase
    case notPKCS12
    case unsupportedPKCS12
    case keyMismatch
    /// A day, `2026-01-31`, by UTC.
    case expired(on: String)
    case notYetValid(from: String)
    case outOfMemory
}

extension ClientCertificateError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .noCertificate: "there is no readable certificate in it"
        case .noKey: "there is no private key in it: export the certificate together with its key"
        case .badKey: "its private key is damaged, or of a kind that can't be used"
        case .needsPassphrase: "it is encrypted: its passphrase is missing"
        case .wrongPassphrase: "its passphrase is another one"
        case .notPKCS12: "it is no PKCS#12 file (.p12), or a damaged one"
        case .unsupportedPKCS12:
            "it is encrypted in a way that this machine's OpenSSL does not know: turn it into PEM with `openssl pkcs12 -legacy -nodes`"
        case .keyMismatch: "the private key does not belong to the certificate"
        case .expired(let day): "the certificate has expired on \(day)"
        case .notYetValid(let day): "the certificate is not valid before \(day): check this machine's clock"
        case .outOfMemory: "OpenSSL could not allocate memory"
        }
    }
}
