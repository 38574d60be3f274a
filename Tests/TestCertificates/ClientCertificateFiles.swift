public import TLS

/// Client certificates as Apple makes them; each is signed by itself, and so its own authority.
public struct ClientCertificateFiles {
    public let certificate: [UInt8]
    public let key: [UInt8]

    /// Apple's marks of what a certificate is for.
    public static let sandbox = "1.2.840.113635.100.6.3.1"
    public static let production = "1.2.840.113635.100.6.3.2"

    public init(userIDs: [String], marks: [String] = []) throws {
        let openssl = try OpenSSLProgram()
        defer { openssl.end() }
        let subject = userIDs.map { "/UID=\($0)" }.joined() + "/CN=Apple Push Services"
        var arguments = [
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", subject,
            "-keyout", "file:key", "-out", "file:certificate", "-addext", "extendedKeyUsage=clientAuth",
        ]
        for mark in marks { arguments += ["-addext", mark + "=DER:05:00"] }
        try openssl.run(arguments)
        certificate = try openssl.read("certificate")
        key = try openssl.read("key")
    }

    public func identity() throws -> ClientCertificate { try ClientCertificate(pem: certificate.span, key: key.span) }
}
