import TLS

/// An attempt in flight with the response received so far.
struct Flight {
    let delivery: Delivery
    let attempt: Attempt
    var status: Int?
    var retryAfter: String?
    var body: [UInt8] = []
}

/// One attempt of one push.
struct Attempt {
    let startedAt: UInt64
    let startedAtWallMs: UInt64
    /// The authorization that was sent. Nil with a certificate.
    let authorization: Authorization?
}

/// The service and TLS context of new connections, and the proxy on the way.
struct Target {
    let adapter: any PushServiceAdapter
    let endpoint: Endpoint
    let context: TLSContext
    let proxy: Proxy?

    /// Where to connect to.
    var firstHop: Endpoint { proxy?.endpoint ?? endpoint }
}
