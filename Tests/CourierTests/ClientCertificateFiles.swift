import Linux
import TLS

/// Client certificates as Apple makes them, from Debian's `openssl`; each is signed by itself, and so its own authority.
struct ClientCertificateFiles {
    struct Failed: Error { let arguments: [String] }

    let certificate: [UInt8]
    let key: [UInt8]

    /// Apple's marks of what a certificate is for.
    static let sandbox = "1.2.840.113635.100.6.3.1"
    static let production = "1.2.840.113635.100.6.3.2"

    init(userIDs: [String], marks: [String] = []) throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let subject = userIDs.map { "/UID=\($0)" }.joined() + "/CN=Apple Push Services"
        var arguments = [
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", subject,
            "-keyout", folder + "/key", "-out", folder + "/certificate", "-addext", "extendedKeyUsage=clientAuth",
        ]
        for mark in marks { arguments += ["-addext", mark + "=DER:05:00"] }
        var output = [UInt8](repeating: 0, count: 4096)
        var span = output.mutableSpan
        guard
            case .ended(.status(0), _) = try ChildProcess.read(
                "/usr/bin/openssl", arguments: arguments, into: &span, deadlineMs: 20_000)
        else { throw Failed(arguments: arguments) }
        certificate = try File.read(folder + "/certificate", limit: 65_536)
        key = try File.read(folder + "/key", limit: 65_536)
    }

    func identity() throws -> ClientCertificate { try ClientCertificate(pem: certificate.span, key: key.span) }
}
