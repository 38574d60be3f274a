import Broker
import HTTP1
import HTTPServer

/// The calls' calls: tokens of phones that ring, and the webhook that says that somebody calls.
extension API {
    /// - Returns: nil for a path that is none of these.
    static func callsRoute(_ path: String) -> [(method: Method, call: Call)]? {
        switch path {
        case "/api/voip/token": [(.post, { try await $0.registerPhone($1) }), (.delete, { try await $0.deletePhone($1) })]
        case "/webhooks/call": [(.post, { try await $0.ring($1) })]
        default: nil
        }
    }

    private func registerPhone(_ request: HTTPRequest) async throws -> HTTPResponse {
        guard let calls else { throw BrokerError.audiencesOff }
        let principal = try principal(request)
        let asked = try request.withBody { bytes throws(BrokerError) in
            let body = try RequestBody(bytes)
            let user = try body.client("uid", bytes)
            guard let token = try body.token(bytes) else { throw .missingField("token") }
            return (
                user: user, token: token, environment: try body.environment(bytes), topic: try body.topic(bytes),
                dropped: body.dropped
            )
        }
        let registered = try await calls.register(
            principal, user: asked.user, token: asked.token, environment: asked.environment, topic: asked.topic)
        return Self.registered(registered, "voip_", asked.dropped)
    }

    private func deletePhone(_ request: HTTPRequest) async throws -> HTTPResponse {
        guard let calls else { throw BrokerError.audiencesOff }
        let principal = try principal(request)
        let (user, token, dropped) = try request.withBody { bytes throws(BrokerError) in
            let body = try RequestBody(bytes)
            let token = try body.token(bytes)
            // A variable that was empty, or a field misspelt, must not log all phones out.
            guard token != nil || body.holdsOnly(["uid"]) else {
                throw .outOfRange("token", allowed: "a token, or no field but uid for all of the user's")
            }
            return (try body.client("uid", bytes), token, body.dropped)
        }
        let purged = try await calls.delete(principal, user: user, token: token)
        return .json(200) { json in
            json.add("success", true)
            json.add("purged", purged)
            if !dropped.isEmpty { json.add("dropped", dropped) }
        }
    }

    private func ring(_ request: HTTPRequest) async throws -> HTTPResponse {
        guard let calls, let webhookSecrets else { throw BrokerError.audiencesOff }
        // First of all: nothing of a body is looked at that anybody may have sent.
        let isSigned = request.withBody { body in
            request.withHeader("x-cometchat-signature") { webhookSecrets.haveSigned(body, $0) } ?? false
        }
        guard isSigned else { throw BrokerError.invalidSignature }
        let body = try request.withBody { bytes throws(BrokerError) in try CallBody(bytes) }
        var receipt = CallReceipt()
        if let invitation = body.invitation { receipt = try await calls.ring(invitation) }
        return .json(200) { json in
            json.add("success", true)
            json.add("rang", receipt.rang)
            if receipt.throttled > 0 { json.add("throttled", receipt.throttled) }
            if receipt.isRepeated { json.add("repeated", true) }
            if !body.dropped.isEmpty { json.add("dropped", body.dropped) }
        }
    }
}
