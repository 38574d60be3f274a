/// What APNs makes of a request, without I/O. Where Apple gives no order of the checks, the order here is ours:
/// method and path, repeated headers, provider token, device token, topic and push type, the other headers, payload.
struct Rules {
    let bundleID: String
    var verifier: ProviderTokenVerifier
    /// By push type.
    private let topics: [PushType: String]

    init(bundleID: String, verifier: ProviderTokenVerifier) {
        self.bundleID = bundleID
        self.verifier = verifier
        topics = Dictionary(uniqueKeysWithValues: PushType.allCases.map { ($0, bundleID + $0.topicSuffix) })
    }

    /// What a connection is held to: the token of its first valid request.
    struct Session: Equatable {
        var provider: ProviderToken?
    }

    /// - Parameters:
    ///   - session: of the connection the request came on; changed when its provider token is accepted.
    ///   - now: unix seconds.
    /// - Returns: the push type.
    mutating func check(_ request: PushRequest, on session: inout Session, now: UInt64) throws(Rejection) -> PushType {
        let isPath = request.with(.path) { path in
            path.hasPrefix(PushRequest.pathPrefix)
                && path.extracting(PushRequest.pathPrefix.utf8.count..<path.count).allSatisfy { byte in
                    byte != UInt8(ascii: "/") && byte != UInt8(ascii: "?")
                }
        }
        guard isPath == true else { throw Rejection(.badPath) }
        guard request.with(.method, { $0.equals("POST") }) == true else { throw Rejection(.methodNotAllowed) }
        guard !request.repeatsAField else { throw Rejection(.duplicateHeaders) }

        guard
            let provider = try request.with(
                .authorization, { (header) throws(Rejection) in try verifier.verify(header, now: now) })
        else { throw Rejection(.missingProviderToken) }
        try Self.admit(provider, to: &session)

        try request.with(.path) { (path) throws(Rejection) in
            try Self.checkDevice(path.extracting(PushRequest.pathPrefix.utf8.count..<path.count))
        }
        let type = try pushType(request)
        try Self.checkFields(request, type)
        try Self.checkPayload(request.body, type)
        return type
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

    private static func checkDevice(_ device: Span<UInt8>) throws(Rejection) {
        guard !device.isEmpty else { throw Rejection(.missingDeviceToken) }
        guard device.count.isMultiple(of: 2), device.count <= 200, device.allSatisfy(\.isHexDigit) else {
            throw Rejection(.badDeviceToken)
        }
    }

    private func pushType(_ request: PushRequest) throws(Rejection) -> PushType {
        let named = request.text(.pushType)
        let type = named.flatMap { PushType(rawValue: $0) }
        if named != nil, type == nil { throw Rejection(.invalidPushType) }
        if let type, let topic = topics[type], request.with(.topic, { $0.equals(topic) }) == true { return type }
        // Not the topic of the type it names: why.
        guard let topic = request.text(.topic), !topic.isEmpty else { throw Rejection(.missingTopic) }
        guard topic.utf8.allSatisfy(\.isTopicCharacter) else { throw Rejection(.badTopic) }
        guard topic == bundleID || topic.hasPrefix(bundleID + ".") else { throw Rejection(.topicDisallowed) }
        // Ours: a topic of this app that belongs to another push type, or to none.
        guard named == nil, let implied = PushType(topic: topic, bundleID: bundleID) else { throw Rejection(.badTopic) }
        return implied
    }

    private static func checkFields(_ request: PushRequest, _ type: PushType) throws(Rejection) {
        if request.with(.id, isCanonicalUUID) == false { throw Rejection(.badMessageID) }
        if let seconds = request.with(.expiration, decimal) {
            guard let seconds else { throw Rejection(.badExpirationDate) }
            if type == .pushtotalk, seconds != 0 { throw Rejection(.badExpirationDate) }
        }
        if let priority = request.with(.priority, decimal) {
            guard let priority, type.allows(priority: Int(clamping: priority)) else { throw Rejection(.badPriority) }
        } else if type == .background {
            // The default, 10, is not allowed for it.
            throw Rejection(.badPriority)
        }
        if let length = request.with(.collapseID, { $0.count }), length > 64 { throw Rejection(.badCollapseID) }
    }

    private static func checkPayload(_ body: [UInt8], _ type: PushType) throws(Rejection) {
        guard !body.isEmpty else { throw Rejection(.payloadEmpty) }
        guard body.count <= type.payloadLimit else { throw Rejection(.payloadTooLarge) }
        // Ours: Apple has no reason for a body that is not a JSON object, or an empty one.
        guard JSON.isObjectWithMembers(body) else { throw Rejection(.payloadEmpty) }
        if type == .background {
            // Apple: a push type that does not fit the payload can cause an error.
            guard let aps = JSON(parsing: body)?["aps"], aps["content-available"]?.wholeNumber == 1, aps["alert"] == nil,
                aps["sound"] == nil, aps["badge"] == nil
            else { throw Rejection(.invalidPushType) }
        }
    }

    static func isCanonicalUUID(_ text: Span<UInt8>) -> Bool {
        guard text.count == 36 else { return false }
        for index in text.indices {
            let byte = text[index]
            switch index {
            case 8, 13, 18, 23: guard byte == UInt8(ascii: "-") else { return false }
            default: guard byte.isHexDigit, !(UInt8(ascii: "A")...UInt8(ascii: "F")).contains(byte) else { return false }
            }
        }
        return true
    }

    /// Digits alone, no sign; nil for anything else.
    private static func decimal(_ text: Span<UInt8>) -> UInt64? {
        guard !text.isEmpty else { return nil }
        var value: UInt64 = 0
        for index in text.indices {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(text[index]) else { return nil }
            let (tenfold, tooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, alsoTooLarge) = tenfold.addingReportingOverflow(UInt64(text[index] - UInt8(ascii: "0")))
            guard !tooLarge, !alsoTooLarge else { return nil }
            value = sum
        }
        return value
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
