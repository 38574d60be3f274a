import Linux
import Sodium
import TLS

/// The files of the public listener's TLS, read at the start and at every SIGHUP.
struct CertificateFiles: Sendable {
    let certificate: GivenFile
    let key: GivenFile
    let clientCA: GivenFile?

    /// Nil where TLS is not asked for.
    init?(_ configuration: Configuration) throws {
        switch (configuration.file(.tlsCertificate), configuration.file(.tlsKey)) {
        case (nil, nil):
            guard configuration[.tlsClientCA] == nil else {
                throw configuration.invalid(
                    .tlsClientCA, "needs --tls-certificate and --tls-key, because only TLS has client certificates")
            }
            return nil
        case (let certificate?, let key?):
            self.certificate = certificate
            self.key = key
            clientCA = configuration.file(.tlsClientCA)
        default: throw UsageError("--tls-certificate and --tls-key need each other: set both or neither")
        }
    }

    /// - Parameter isRenewal: there is a certificate in use, which an expired one may not replace.
    /// - Throws: `CommandFailed`, which names the file and what is wrong with it.
    func load(isRenewal: Bool = false) throws -> TLSContext {
        let chain = try certificate.read(limit: Self.limit)
        let authorities = try clientCA?.read(limit: Self.limit)
        var secret = try key.read(limit: Self.limit)
        defer { wipe(&secret) }
        if let status = try? File.status(key.path), status.kind == .file, status.mode & 0o077 != 0 {
            Terminal.log("warning: other users can read \(key), the key of the TLS certificate. Set its mode to 0600")
        }
        let context = try make(chain, secret)
        if context.hasExpired {
            if isRenewal { throw certificate.failure("has expired") }
            Terminal.log(
                "warning: the certificate in \(certificate) has expired, so apps will refuse it. Renew it and send SIGHUP")
        }
        if let clientCA {
            // With the certificate found good, what is wrong now are the authorities.
            do throws(TLSError) {
                return try TLSContext.server(
                    certificateChain: chain, privateKey: secret.span, alpn: Self.protocols, clientAuthorities: authorities)
            } catch {
                throw CommandFailed("\(clientCA.source): \(clientCA): \(error)")
            }
        }
        return context
    }

    private static let protocols = ["h2", "http/1.1"]
    private static let limit = 1_048_576

    private func make(_ chain: [UInt8], _ secret: [UInt8]) throws -> TLSContext {
        do throws(TLSError) {
            return try TLSContext.server(certificateChain: chain, privateKey: secret.span, alpn: Self.protocols)
        } catch {
            let file =
                switch error {
                case .badKey: "\(key.source): \(key)"
                case .keyMismatch: "\(key.source): \(key) and \(certificate)"
                default: "\(certificate.source): \(certificate)"
                }
            throw CommandFailed("\(file): \(error)")
        }
    }
}
