/// The body of `POST /subscriptions`: `{"dialect", "applicationServerKey", "origin"?, "id"?}`.
struct SubscriptionRequest: Sendable {
    let dialect: PushServiceDialect
    let applicationServerKey: String
    let origin: String?
    let id: String?

    init(json: [UInt8]) throws(WebPushFace.Malformed) {
        guard case .object(let members)? = JSON(parsing: json) else {
            throw WebPushFace.Malformed(explanation: "The body must be one JSON object.")
        }
        var texts: [String: String] = [:]
        for (name, value) in members {
            guard ["dialect", "applicationServerKey", "origin", "id"].contains(name), let text = value.text else {
                throw WebPushFace.Malformed(explanation: "\(name) is not a member of a subscription, or is not text.")
            }
            texts[name] = text
        }
        guard let dialect = texts["dialect"].flatMap({ PushServiceDialect(rawValue: $0) }) else {
            let names = PushServiceDialect.allCases.map(\.rawValue).joined(separator: ", ")
            throw WebPushFace.Malformed(explanation: "dialect must be one of \(names).")
        }
        self.dialect = dialect
        applicationServerKey = texts["applicationServerKey"] ?? ""
        (origin, id) = (texts["origin"], texts["id"])
    }
}

extension APNsSimulator {
    /// Makes a subscription of a simulated browser.
    /// - Returns: the form of `PushSubscription.toJSON()`.
    func subscribe(_ wanted: SubscriptionRequest) throws -> [UInt8] {
        try webPush.subscribe(
            wanted.dialect, key: wanted.applicationServerKey, origin: wanted.origin, id: wanted.id, keys: .init()
        ).json
    }

    /// Makes a subscription of a simulated browser.
    /// - Parameters:
    ///   - key: the application server's public key in base64url.
    ///   - origin: scheme, host and port of the endpoint. Nil: the address of the listener.
    /// - Returns: the form of `PushSubscription.toJSON()`.
    /// - Throws: an error for a malformed key or origin.
    public func subscribe(_ dialect: PushServiceDialect, key: String, origin: String? = nil) throws -> [UInt8] {
        try webPush.subscribe(dialect, key: key, origin: origin, keys: .init()).json
    }

    /// Nil if there is no such subscription.
    func state(of id: String) -> WebPushSubscription.State? { webPush.subscriptions[id]?.state }

    /// Returns false if there is no such subscription.
    func set(_ state: WebPushSubscription.State, of id: String) -> Bool { webPush.set(state, of: id, nowMs: wallMs()) }

    /// Forgets a subscription. Returns false if there is none.
    func unsubscribe(_ id: String) -> Bool { webPush.remove(id) }
}
