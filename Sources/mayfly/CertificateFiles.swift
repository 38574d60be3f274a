import Linux
import Sodium
import TLS

/// The files of the public listener's TLS, read at the start and at every SIGHUP.
struct CertificateFiles: Sendable {
    let certificate: String
    let key: String
    let clientCA: String?

    /// Nil where TLS is not asked for.
    init?(_ configuration: Configuration) throws {
        switch (configuration[.tlsCertificate], configuration[.tlsKey]) {
        case (nil, nil):
            guard configuration[.tlsClientCA] == nil else {
                throw UsageError("--tls-client-ca needs --tls-certificate and --tls-key: only TLS has client certificates")
            }
            return nil
        case (let certificate?, let key?):
            self.certificate = certificate
            self.key = key
            clientCA = configuration[.tlsClientCA]
        default: throw UsageError("--tls-certificate and --tls-key belong together: give both or neither")
        }
    }

    /// - Parameter isRenewal: there is a certificate in use, which an expired one may not replace.
    /// - Throws: `CheckFailed`, which names the file and what is wrong with it.
    func load(isRenewal: Bool = false) throws -> TLSContext {
        let chain = try read(certificate)
        let authorities = try clientCA.map { try read($0) }
        var secret = try read(key)
        defer { wipe(&secret) }
        if let mode = try? File.status(key)?.mode, mode & 0o077 != 0 {
            Terminal.log("warning: others than this user can read \(key), the key of the TLS certificate: make its mode 0600")
        }
        let context = try make(chain, secret)
        if context.hasExpired {
            if isRenewal { throw CheckFailed("mayfly: the certificate in \(certificate) has expired") }
            Terminal.log("warning: the certificate in \(certificate) has expired: apps will refuse it")
        }
        if let clientCA {
            // With the certificate found good, what is wrong now are the authorities.
            do throws(TLSError) {
                return try TLSContext.server(
                    certificateChain: chain, privateKey: secret.span, alpn: Self.protocols, clientAuthorities: authorities)
            } catch {
                throw CheckFailed("mayfly: --tls-client-ca \(clientCA): \(error)")
            }
        }
        return context
    }

    private static let protocols = ["h2", "http/1.1"]

    private func make(_ chain: [UInt8], _ secret: [UInt8]) throws -> TLSContext {
        do throws(TLSError) {
            return try TLSContext.server(certificateChain: chain, privateKey: secret.span, alpn: Self.protocols)
        } catch {
            let file =
                switch error {
                case .badKey: key
                case .keyMismatch: "\(key) and \(certificate)"
                default: certificate
                }
            throw CheckFailed("mayfly: \(file): \(error)")
        }
    }

    private func read(_ path: String) throws -> [UInt8] {
        do {
            return try File.read(path, limit: 1_048_576)
        } catch {
            throw CheckFailed("mayfly: \(path) can't be read: \(error)")
        }
    }
}
