public import Linux
public import Shares

/// Networks of the operator's own back ends, which have larger shares than unknown callers.
public struct BackEnds: Sendable {
    private let networks: [Network]
    /// True if every caller with a certificate counts as a back end. The listener then requires certificates.
    public let haveCertificates: Bool

    /// Returns nil if a word is invalid.
    /// - Parameter text: addresses and networks, e.g. `10.0.0.7,2001:db8::/48`, and `certificates`.
    public init?(_ text: String) {
        var networks: [Network] = []
        var haveCertificates = false
        for word in text.split(separator: ",") {
            if word.filter({ $0 != " " }) == "certificates" {
                haveCertificates = true
                continue
            }
            guard let network = Network(word) else { return nil }
            networks.append(network)
        }
        (self.networks, self.haveCertificates) = (networks, haveCertificates)
    }

    /// Says which part of the text `init` refuses and why. Nil if all are valid.
    public static func fault(in text: String) -> String? {
        let words = text.split(separator: ",").map { String($0.filter { $0 != " " }) }
        return Network.fault(in: words.map { $0 == "certificates" ? "127.0.0.1" : $0 })
    }

    /// Returns the owner of a back end's connections. Returns nil for other addresses.
    public func payer(_ address: SocketAddress, _ shares: Shares) -> Owner? {
        guard let number = index(of: address) else { return nil }
        let name = Array("--backends \(number)".utf8)
        return shares.backEnd(name.span)
    }

    /// Returns the number of the network that contains the address. All its addresses share one back end's share.
    func index(of address: SocketAddress) -> Int? {
        let bytes = Network.bytes(address)
        return networks.firstIndex { $0.contains(bytes) } ?? (haveCertificates ? networks.count : nil)
    }
}
