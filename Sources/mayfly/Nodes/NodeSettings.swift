import Linux
import TLS

/// How the nodes of a deployment reach each other. All three settings belong together.
struct NodeSettings {
    /// Where other nodes fetch the keys. They learn this address from the database.
    let listen: SocketAddress
    let server: TLSContext
    let client: TLSContext

    /// Returns nil if none is set: then this node has no standby.
    init?(_ configuration: Configuration) throws {
        let keys: [Key] = [.nodeListen, .nodeCertificate, .nodeCA]
        let given = keys.filter { configuration[$0] != nil }
        if given.isEmpty { return nil }
        guard given.count == keys.count else {
            throw UsageError("\(keys.map { "--\($0.rawValue)" }.joined(separator: ", ")) need each other: set all or none")
        }
        listen = try configuration.address(.nodeListen, default: "")
        guard case .some = listen.port, listen.host != "0.0.0.0", listen.host != "::" else {
            throw configuration.invalid(.nodeListen, "must be an address that the other nodes can reach, with a port")
        }
        let certificate = try configuration.requiredFile(.nodeCertificate)
        var text = try certificate.read(limit: Self.limit)
        defer { wipe(&text) }
        certificate.warnIfExposed("the key with which a node gets all keys")
        let authorities = try configuration.requiredFile(.nodeCA).read(limit: Self.limit)
        do {
            server = try TLSContext.server(
                certificateChain: text, privateKey: text.span, alpn: ["http/1.1"], clientAuthorities: authorities)
            client = try TLSContext.client(
                trust: .authorities(authorities), alpn: ["http/1.1"],
                certificate: try ClientCertificate(pem: text.span, key: text.span))
        } catch { throw certificate.failure("or the authorities of \(Key.nodeCA.named) can't be used: \(error)") }
    }

    private static let limit = 1_048_576
}
