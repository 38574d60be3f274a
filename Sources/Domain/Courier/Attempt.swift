import TLS

/// An attempt in flight with the response received so far.
struct Flight {
    let delivery: Delivery
    let attempt: Attempt
    var status: Int?
    var retryAfter: String?
    /// The value of the adapter's `remarkField`.
    var remark: String?
    var body: [UInt8] = []
}

/// One attempt of one push.
struct Attempt {
    let startedAt: UInt64
    let startedAtWallMs: UInt64
    /// The authorization that was sent. Nil with a certificate.
    let authorization: Authorization?
}

/// Limits the connections to all hosts of a group together. Used only on the loop's thread.
final class ConnectionLimit {
    private let most: Int
    private(set) var count = 0

    init(_ most: Int) { self.most = most }

    /// - Returns: false if there are too many.
    func take() -> Bool {
        guard count < most else { return false }
        count += 1
        return true
    }

    func release() { count -= 1 }
}

/// The service and TLS context of new connections, and the proxy on the way.
struct Target {
    let adapter: any PushServiceAdapter
    let endpoint: Endpoint
    let context: TLSContext
    let proxy: Proxy?
    /// The proxy's address, if this broker resolves the endpoint's name itself. Nil if the proxy resolves it.
    var proxyAddress: ProxyAddress?
    /// True if HTTP/1.1 is spoken to a server without HTTP/2.
    var allowsHTTP1 = false
    /// True if its lane's courier decides which addresses may be called, numeric ones included.
    var checksAddresses = false
    /// Shared with the connections to other hosts. Nil for no limit.
    var limit: ConnectionLimit?

    /// The name to resolve.
    var firstHop: Endpoint { proxyAddress == nil ? proxy?.endpoint ?? endpoint : endpoint }
}
