import Vocabulary

/// The checks of APNs, without I/O. Apple documents no order of the checks; this order is ours: path and method, repeated headers,
/// certificate or provider token, device token, topic and push type, other headers, payload.
struct Rules {
    var verifier: ProviderTokenVerifier

    /// The authentication state of a connection.
    struct Session: Equatable {
        /// The last valid provider token. The first one fixes team and key.
        var provider: ProviderToken?
        /// The client's certificate. With a certificate, tokens are ignored.
        var certificate: PushCertificate?

        var isAuthenticated: Bool { provider != nil || certificate?.isValid == true }
    }

    /// The apps that the sender of a request may push to.
    private struct Sender {
        let bundleIDs: [String]
        /// The default topic: the certificate's if it has only one.
        var implied: String?
        var hasCertificate = false
    }

    /// - Parameters:
    ///   - session: the connection's state. Changes if a provider token is accepted.
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
        let sender = try sender(of: request, &session, now)
        try request.with(.path) { (path) throws(Rejection) in
            try Self.checkDevice(path.extracting(PushRequest.pathPrefix.utf8.count..<path.count))
        }
        let type = try Self.pushType(request, from: sender)
        try Self.checkFields(request, type)
        try Self.checkPayload(request.body, type)
        return type
    }

    private mutating func sender(
        of request: PushRequest, _ session: inout Session, _ now: UInt64
    ) throws(Rejection) -> Sender {
        if let certificate = session.certificate {
            guard certificate.isValid else { throw Rejection(.badCertificate) }
            guard certificate.environments.contains(verifier.environment) else { throw Rejection(.badCertificateEnvironment) }
            let ids = certificate.bundleIDs
            return Sender(bundleIDs: ids, implied: ids.count == 1 ? ids[0] : nil, hasCertificate: true)
        }
        let current = session.provider
        guard
            let provider = try request.with(
                .authorization,
                { (header) throws(Rejection) in try verifier.verify(header, current: current, now: now) })
        else { throw Rejection(.missingProviderToken) }
        try admit(provider, to: &session)
        return Sender(bundleIDs: verifier.keys[provider.key].bundleIDs)
    }

    /// A connection may replace its provider token only by a sufficiently younger one of the same team and key.
    private func admit(_ token: ProviderToken, to session: inout Session) throws(Rejection) {
        if let current = session.provider, current != token {
            // Ours: Apple documents no reason for another team, only for another key.
            guard verifier.keys[token.key].teamID == verifier.keys[current.key].teamID else {
                throw Rejection(.invalidProviderToken)
            }
            guard token.key == current.key else { throw Rejection(.unrelatedKeyID) }
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

    private static func pushType(_ request: PushRequest, from sender: Sender) throws(Rejection) -> PushType {
        let named = request.with(.pushType) { PushType($0) }
        if case .some(.none) = named { throw Rejection(.invalidPushType) }
        let type = named ?? nil
        let found = try request.with(.topic) { (topic) throws(Rejection) in try pushType(type, topic, sender) }
        if let found { return found }
        guard let implied = sender.implied else { throw Rejection(.missingTopic) }
        return try pushType(type, implied.utf8.span, sender)
    }

    /// - Parameter named: the type in `apns-push-type`.
    private static func pushType(
        _ named: PushType?, _ topic: Span<UInt8>, _ sender: Sender
    ) throws(Rejection) -> PushType {
        guard !topic.isEmpty else { throw Rejection(.missingTopic) }
        for bundleID in sender.bundleIDs {
            guard let type = named ?? PushType(topic: topic, bundleID: bundleID), type.fits(topic, bundleID: bundleID) else {
                continue
            }
            // Ours: a certificate has only the topics of types that need no token.
            if sender.hasCertificate, type.needsToken { throw Rejection(.topicDisallowed) }
            return type
        }
        guard topic.allSatisfy(\.isTopicCharacter) else { throw Rejection(.badTopic) }
        let isOwnApp = sender.bundleIDs.contains { topic.equals($0) || topic.hasPrefix($0 + ".") }
        // Ours: the topic is this app's, but of another push type or of none.
        throw Rejection(isOwnApp ? .badTopic : .topicDisallowed)
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
            // The default is 10, which background pushes may not have.
            throw Rejection(.badPriority)
        }
        if let length = request.with(.collapseID, { $0.count }), length > 64 { throw Rejection(.badCollapseID) }
    }

    private static func checkPayload(_ body: [UInt8], _ type: PushType) throws(Rejection) {
        guard !body.isEmpty else { throw Rejection(.payloadEmpty) }
        guard body.count <= type.payloadLimit else { throw Rejection(.payloadTooLarge) }
        // Ours: Apple documents no reason for an empty object or another JSON value.
        guard JSON.isObjectWithMembers(body) else { throw Rejection(.payloadEmpty) }
        if type == .background {
            // Apple documents that a payload must match its push type, but no reason.
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

    /// Parses digits without a sign. Returns nil for other text.
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
    var isHexDigit: Bool { Hex.value(self) != nil }

    /// Letters, digits, hyphens and dots, as in bundle ids.
    fileprivate var isTopicCharacter: Bool {
        switch self {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}
