import HTTP2
import Sealing
import TLS
import Vocabulary

/// Apple's push service, with a lane for each account and environment.
struct APNsAdapter: PushServiceAdapter {
    let accounts: Accounts

    /// The lanes, by the index of their `LaneID`, and their signers by team and key id.
    func lanes(
        _ configuration: Courier.Configuration, _ shared: Shared
    ) -> (lanes: [LaneSettings], signers: [String: ProviderTokenSigner]) {
        var signers: [String: ProviderTokenSigner] = [:]
        var lanes: [LaneSettings] = []
        for account in accounts.all {
            var certificate: ClientCertificate?
            var signer: ProviderTokenSigner?
            switch account.credential {
            case .certificate(let shown): certificate = shown
            case .token(let token):
                let key = token.teamID + " " + token.keyID
                signer = signers[key] ?? ProviderTokenSigner(token, key, shared)
                signers[key] = signer
            }
            for environment in PushEnvironment.allCases {
                lanes.append(
                    LaneSettings(
                        service: .apns(environment),
                        endpoint: environment == .production ? configuration.production : configuration.sandbox,
                        certificate: certificate, signer: signer, apps: account.topicNames))
            }
        }
        return (lanes, signers)
    }

    /// Returns where a push goes.
    /// - Throws: `Unserved` if no lane serves its destination.
    func route(of push: Push) throws(Unserved) -> (lane: LaneID, topic: String) {
        guard case .apns(let app, let environment) = push.address.destination else {
            throw Unserved(reason: .topicDisallowed, alarm: nil)
        }
        let topic = accounts.bundleID(of: app).map { $0 + push.type.topicSuffix }
        guard let topic, let account = accounts.index(topic, environment, push.type) else {
            throw Unserved(
                reason: accounts.all.isEmpty ? .notConfigured : .topicDisallowed,
                alarm: .noAccount(environment, topic: topic ?? "an unknown app", push.type))
        }
        return (LaneID(index: account * PushEnvironment.allCases.count + (environment == .production ? 0 : 1)), topic)
    }

    func requestWriter(to endpoint: Endpoint) -> any RequestWriter { APNsRequestWriter(endpoint) }

    func answer(_ flight: Flight, status: Int, nowMs: UInt64) -> Answer {
        Answer(status: status, body: flight.body, retryAfter: flight.retryAfter, nowMs: nowMs)
    }

    var traceField: String? { "apns-unique-id" }
    var remarkField: String? { nil }

    func fault(of push: Push) -> PushReason? {
        if !Self.isLowerCaseUUID(push.apnsID) { return .badMessageID }
        if !(1...100).contains(push.address.token.count) { return .badDeviceToken }
        if ![1, 5, 10].contains(push.priority) { return .badPriority }
        if let collapseID = push.collapseID {
            // Apple counts bytes.
            if !(1...64).contains(collapseID.utf8.count) || !Self.isVisible(collapseID) { return .badCollapseID }
        }
        if push.payload.isEmpty { return .payloadEmpty }
        if push.payload.count > push.type.payloadLimit { return .payloadTooLarge }
        return nil
    }

    /// False with a control character, which is invalid in a header. This runs for each push, so it reads the bytes in place.
    private static func isVisible(_ text: String) -> Bool {
        let bytes = text.utf8.span
        for index in bytes.indices where bytes[index] <= 0x20 || bytes[index] == 0x7f { return false }
        return true
    }

    private static func isLowerCaseUUID(_ text: String) -> Bool {
        let bytes = text.utf8.span
        guard bytes.count == 36 else { return false }
        let hyphen = UInt8(ascii: "-")
        guard bytes[8] == hyphen, bytes[13] == hyphen, bytes[18] == hyphen, bytes[23] == hyphen else { return false }
        var digits = 0
        for index in bytes.indices {
            switch bytes[index] {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"): digits += 1
            default: break
            }
        }
        return digits == 32
    }
}

private final class APNsRequestWriter: RequestWriter {
    private var headers: RequestHeaders

    init(_ endpoint: Endpoint) { headers = RequestHeaders(endpoint) }

    func submit(_ delivery: Delivery, _ authorization: Authorization?, to session: PushSession) throws(HTTP2Error) -> Int32 {
        guard case .http2(let session) = session else { throw .badMessage }
        let body = delivery.push.payload
        return try headers.with(delivery.push, topic: delivery.topic.name, authorization) { (headers) throws(HTTP2Error) in
            try session.submitRequest(headers, body: body)
        }
    }
}
