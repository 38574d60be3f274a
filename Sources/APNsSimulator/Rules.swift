/// What APNs makes of a request, without I/O. Where Apple gives no order of the checks, the order here is ours:
/// method and path, repeated headers, provider token, device token, topic and push type, the other headers, payload.
struct Rules {
    let bundleID: String
    var verifier: ProviderTokenVerifier

    /// What a connection is held to: the token of its first valid request.
    struct Session: Equatable {
        var provider: ProviderToken?
    }

    struct Accepted: Equatable {
        /// Lower-case hex.
        let token: String
        let pushType: PushType
    }

    /// - Parameters:
    ///   - session: of the connection the request came on; changed when its provider token is accepted.
    ///   - now: unix seconds.
    mutating func verdict(_ request: PushRequest, on session: inout Session, now: UInt64) -> Result<Accepted, Rejection> {
        do throws(Rejection) {
            return .success(try check(request, &session, now))
        } catch {
            return .failure(error)
        }
    }

    private mutating func check(_ request: PushRequest, _ session: inout Session, _ now: UInt64) throws(Rejection) -> Accepted {
        let prefix = "/3/device/"
        guard request.path.hasPrefix(prefix), !request.path.contains("?") else { throw Rejection(.badPath) }
        let device = request.path.dropFirst(prefix.count)
        guard !device.contains("/") else { throw Rejection(.badPath) }
        guard request.method == "POST" else { throw Rejection(.methodNotAllowed) }
        guard !request.repeatsAHeader else { throw Rejection(.duplicateHeaders) }

        let provider = try verifier.verify(request["authorization"], now: now).get()
        try Self.admit(provider, to: &session)

        guard !device.isEmpty else { throw Rejection(.missingDeviceToken) }
        guard device.utf8.count.isMultiple(of: 2), device.utf8.count <= 200, device.utf8.allSatisfy(\.isHexDigit) else {
            throw Rejection(.badDeviceToken)
        }
        let type = try pushType(request)
        try Self.checkHeaders(request, type)
        try Self.checkPayload(request.body, type)
        return Accepted(token: device.lowercased(), pushType: type)
    }

    /// A connection may change its provider token, but not to one that is hardly younger.
    private static func admit(_ token: ProviderToken, to session: inout Session) throws(Rejection) {
        if let current = session.provider, current != token {
            guard token.issuedAt >= current.issuedAt + ProviderToken.shortestRefresh else {
                throw Rejection(.tooManyProviderTokenUpdates)
            }
        }
        session.provider = token
    }

    private func pushType(_ request: PushRequest) throws(Rejection) -> PushType {
        let named: PushType?
        if let name = request["apns-push-type"] {
            guard let type = PushType(rawValue: name) else { throw Rejection(.invalidPushType) }
            named = type
        } else {
            named = nil
        }
        guard let topic = request["apns-topic"], !topic.isEmpty else { throw Rejection(.missingTopic) }
        guard topic.utf8.allSatisfy(\.isTopicCharacter) else { throw Rejection(.badTopic) }
        guard topic == bundleID || topic.hasPrefix(bundleID + ".") else { throw Rejection(.topicDisallowed) }
        // Ours: a topic of this app that belongs to another push type, or to none.
        guard let implied = PushType(topic: topic, bundleID: bundleID) else { throw Rejection(.badTopic) }
        guard let named else { return implied }
        guard named.topicSuffix == implied.topicSuffix else { throw Rejection(.badTopic) }
        return named
    }

    private static func checkHeaders(_ request: PushRequest, _ type: PushType) throws(Rejection) {
        if let id = request["apns-id"], !isCanonicalUUID(id) { throw Rejection(.badMessageID) }
        if let text = request["apns-expiration"] {
            guard let seconds = decimal(text) else { throw Rejection(.badExpirationDate) }
            if type == .pushtotalk, seconds != 0 { throw Rejection(.badExpirationDate) }
        }
        if let text = request["apns-priority"] {
            guard let priority = decimal(text), type.allows(priority: Int(clamping: priority)) else {
                throw Rejection(.badPriority)
            }
        } else if type == .background {
            // The default, 10, is not allowed for it.
            throw Rejection(.badPriority)
        }
        if let id = request["apns-collapse-id"], id.utf8.count > 64 { throw Rejection(.badCollapseID) }
    }

    private static func checkPayload(_ body: [UInt8], _ type: PushType) throws(Rejection) {
        guard !body.isEmpty else { throw Rejection(.payloadEmpty) }
        guard body.count <= type.payloadLimit else { throw Rejection(.payloadTooLarge) }
        // Ours: Apple has no reason for a body that is not a JSON object, or an empty one.
        guard let payload = JSON(parsing: body), case .object(let members) = payload, !members.isEmpty else {
            throw Rejection(.payloadEmpty)
        }
        if type == .background {
            // Apple: a push type that does not fit the payload can cause an error.
            guard let aps = payload["aps"], aps["content-available"]?.wholeNumber == 1, aps["alert"] == nil, aps["sound"] == nil,
                aps["badge"] == nil
            else { throw Rejection(.invalidPushType) }
        }
    }

    static func isCanonicalUUID(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        guard bytes.count == 36 else { return false }
        return bytes.indices.allSatisfy { index in
            switch index {
            case 8, 13, 18, 23: bytes[index] == UInt8(ascii: "-")
            default: bytes[index].isHexDigit && !(UInt8(ascii: "A")...UInt8(ascii: "F")).contains(bytes[index])
            }
        }
    }

    /// Digits alone, no sign.
    private static func decimal(_ text: String) -> UInt64? {
        text.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) } ? UInt64(text) : nil
    }
}

extension UInt8 {
    var isHexDigit: Bool {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "A")...UInt8(ascii: "F"):
            true
        default: false
        }
    }

    /// Bundle ids hold letters, digits, hyphens and dots.
    fileprivate var isTopicCharacter: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}
