import Broker
import HTTP1
import HTTPServer
import JSON

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
        let asked = try request.fields { body, bytes, faults in
            let user = faults.take { () throws(BrokerError) in try body.client("uid", bytes) }
            let token = faults.required("token") { () throws(BrokerError) in try body.token(bytes) }
            let previous = faults.take { () throws(BrokerError) in try body.onlyToken("previousToken", bytes) }
            let environment = faults.take { () throws(BrokerError) in try body.environment(bytes) }
            let topic = faults.take { () throws(BrokerError) in try body.topic(bytes) }
            return if let user, let token {
                (
                    user: user, token: token, previous: previous, environment: environment, topic: topic,
                    dropped: body.dropped(bytes)
                )
            } else { nil }
        }
        let registered = try await calls.register(
            principal, user: asked.user, token: asked.token, previous: asked.previous, environment: asked.environment,
            topic: asked.topic)
        return Self.registered(registered, "voip_", asked.dropped)
    }

    private func deletePhone(_ request: HTTPRequest) async throws -> HTTPResponse {
        guard let calls else { throw BrokerError.audiencesOff }
        let principal = try principal(request)
        let (user, token, dropped) = try request.fields { body, bytes, faults in
            let user = faults.take { () throws(BrokerError) in try body.client("uid", bytes) }
            let token = faults.take { () throws(BrokerError) in
                let all = try body.flag("all", bytes)
                let token = try body.token(bytes)
                // An empty variable or a misspelt field must not delete all of a user's tokens.
                guard token != nil || all else { throw .missingField("token") }
                guard token == nil || !all else { throw .outOfRange("all", allowed: "either all or token") }
                return token
            }
            return user.map { ($0, token, body.dropped(bytes)) }
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
        try RequestCharges.current?.becomeBackEnd(named: "webhooks")
        let body = try request.withBody { bytes throws(InvalidRequest) in try CallBody(bytes) }
        switch body {
        case .call(let invitation, let dropped):
            let receipt = try await calls.ring(invitation)
            return .json(200) { json in
                json.add("success", true)
                json.add("rang", receipt.rang)
                if receipt.throttled > 0 { json.add("throttled", receipt.throttled) }
                if receipt.isRepeated { json.add("repeated", true) }
                if !dropped.isEmpty { json.add("dropped", dropped) }
            }
        case .ignored(let reason):
            // Not an error: senders of webhooks would send it again.
            return .json(200) { json in
                json.add("success", true)
                json.add("rang", 0)
                json.add("ignored", reason.rawValue)
            }
        }
    }
}
