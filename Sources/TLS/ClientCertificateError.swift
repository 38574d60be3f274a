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
        case .noCertificate: "it contains no readable certificate"
        case .noKey: "it contains no private key. Export the certificate together with its key"
        case .badKey: "its private key is damaged or of an unsupported kind"
        case .needsPassphrase: "it is encrypted: its passphrase is missing"
        case .wrongPassphrase: "the passphrase is wrong"
        case .notPKCS12: "it is not a PKCS#12 file (.p12), or it is damaged"
        case .unsupportedPKCS12:
            "this machine's OpenSSL doesn't support its encryption. Convert it to PEM with `openssl pkcs12 -legacy -nodes`"
        case .keyMismatch: "the private key does not belong to the certificate"
        case .expired(let day): "the certificate expired on \(day)"
        case .notYetValid(let day): "the certificate is not valid before \(day). Check this machine's clock"
        case .outOfMemory: "OpenSSL could not allocate memory"
        }
    }
}
