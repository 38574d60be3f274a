import Broker
import Linux
import TLS

/// The addresses of both listeners, and TLS.
struct ListenerSettings {
    let listen: SocketAddress
    let operatorListen: SocketAddress
    let certificate: CertificateFiles?

    init(_ configuration: Configuration, _ activated: ActivatedListeners = .none) throws {
        listen = try activated.apps.address(.listen, configuration)
        operatorListen = try activated.operator.address(.operatorListen, configuration)
        certificate = try CertificateFiles(configuration)
        if certificate == nil { try Self.checkCleartext(listen, configuration) }
        guard operatorListen.isLoopback else {
            throw configuration.invalid(.operatorListen, "must be on loopback, because it has no authentication")
        }
        guard operatorListen != listen || operatorListen.port == 0 else {
            throw configuration.invalid(.operatorListen, "must differ from the address for apps")
        }
    }

    private static func checkCleartext(_ address: SocketAddress, _ configuration: Configuration) throws {
        guard !address.isLoopback, address.host != configuration[.allowCleartext] else { return }
        throw configuration.invalid(
            .listen,
            "\(address.host) is beyond loopback, and tokens must not travel in cleartext. Give --tls-certificate and --tls-key, "
                + "or terminate TLS in a proxy on this machine, or name the address in --allow-cleartext.")
    }
}

/// The TLS files of the public listener. They are read at the start and at each SIGHUP.
struct CertificateFiles: Sendable {
    let certificate: GivenFile
    let key: GivenFile
    let clientCA: GivenFile?

    /// Returns nil if TLS isn't configured.
    init?(_ configuration: Configuration) throws {
        switch (try configuration.file(.tlsCertificate), try configuration.file(.tlsKey)) {
        case (nil, nil):
            guard configuration[.tlsClientCA] == nil else {
                throw configuration.invalid(
                    .tlsClientCA, "needs --tls-certificate and --tls-key, because only TLS has client certificates")
            }
            return nil
        case (let certificate?, let key?):
            self.certificate = certificate
            self.key = key
            clientCA = try configuration.file(.tlsClientCA)
        case (let certificate, _):
            throw configuration.invalid(
                certificate == nil ? .tlsCertificate : .tlsKey,
                "is missing: --tls-certificate needs its private key, --tls-key. Set both or neither")
        }
    }

    /// - Parameter isRenewal: a certificate is in use already, so an expired one is refused.
    /// - Throws: `CommandFailed` with the file's name and the error.
    func load(isRenewal: Bool = false) throws -> TLSContext {
        let chain = try certificate.read(limit: Self.limit)
        let authorities = try clientCA?.read(limit: Self.limit)
        var secret = try key.read(limit: Self.limit)
        defer { wipe(&secret) }
        key.warnIfExposed("the key of the TLS certificate")
        let context = try make(chain, secret)
        if context.hasExpired {
            if isRenewal { throw certificate.failure("has expired") }
            Terminal.log(
                .warning,
                "the certificate in \(certificate) has expired, so apps will refuse it. Renew it and send SIGHUP; restart if it is a credential of systemd"
            )
        }
        if let clientCA {
            // The certificate is valid, so any error now is about the authorities.
            return try CommandFailed.naming("\(clientCA.source): \(clientCA)") {
                try TLSContext.server(
                    certificateChain: chain, privateKey: secret.span, alpn: Self.protocols, clientAuthorities: authorities)
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
