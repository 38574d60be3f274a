import Linux
import TLS

/// How the nodes of a deployment reach each other. All three settings belong together.
struct NodeSettings {
    /// Where other nodes fetch the keys. They learn this address from the database.
    let listen: SocketAddress
    let server: TLSContext
    let client: TLSContext

    /// Returns nil if none is set: then this node is alone.
    init?(_ configuration: Configuration) throws {
        let keys: [Setting] = [.nodeListen, .nodeCertificate, .nodeCA]
        let given = keys.filter { configuration[$0] != nil }
        if given.isEmpty { return nil }
        guard given.count == keys.count else {
            throw UsageError("\(keys.map { "--\($0.rawValue)" }.joined(separator: ", ")) need each other: set all or none")
        }
        listen = try configuration.address(.nodeListen)
        guard case .some = listen.port, listen.host != "0.0.0.0", listen.host != "::" else {
            throw configuration.invalid(
                .nodeListen,
                "must be the address and port at which the other nodes reach this one, so not one that stands for all addresses")
        }
        let certificate = try configuration.requiredFile(.nodeCertificate)
        var text = try certificate.read(limit: Self.limit)
        defer { wipe(&text) }
        certificate.warnIfExposed("the key with which a node gets all keys")
        let authorities = try configuration.requiredFile(.nodeCA).read(limit: Self.limit)
        let isNamed: Bool
        do {
            server = try TLSContext.server(
                certificateChain: text, privateKey: text.span, alpn: ["http/1.1"], clientAuthorities: authorities)
            let own = try ClientCertificate(pem: text.span, key: text.span)
            client = try TLSContext.client(trust: .authorities(authorities), alpn: ["http/1.1"], certificate: own)
            isNamed = own.names(listen.host)
        } catch { throw certificate.failure("or the authorities of \(Setting.nodeCA.named) can't be used: \(error)") }
        guard isNamed else {
            throw configuration.invalid(.nodeCertificate, "must name the address of --node-listen, or other nodes refuse it")
        }
    }

    private static let limit = 1_048_576
}
