import Broker
import HTTPServer
import JSON

/// The calls' calls: tokens of phones that ring, and the webhook that says that somebody calls.
extension API {
    func registerPhone(_ request: HTTPRequest) async throws -> HTTPResponse {
        guard let calls else { throw BrokerError.audiencesOff }
        let principal = try principal(request)
        let asked = try request.fields { body in
            let user = body.name("uid", required: true)
            let token = body.onlyToken("token", required: true)
            let previous = body.onlyToken("previousToken")
            let environment = body.environment()
            let topic = body.topic()
            return if let user, let token {
                (
                    user: user, token: token, previous: previous, environment: environment, topic: topic,
                    dropped: body.dropped
                )
            } else { nil }
        }
        let registered = try await calls.register(
            principal, user: asked.user, token: asked.token, previous: asked.previous, environment: asked.environment,
            topic: asked.topic)
        return Self.registered(registered, "voip_", asked.dropped)
    }

    func deletePhone(_ request: HTTPRequest) async throws -> HTTPResponse {
        guard let calls else { throw BrokerError.audiencesOff }
        let principal = try principal(request)
        let (user, token, dropped) = try request.fields { body in
            let user = body.name("uid", required: true)
            let token = body.tokenUnlessAll()
            return user.map { ($0, token, body.dropped) }
        }
        let purged = try await calls.delete(principal, user: user, token: token)
        return .json(200) { json in
            json.add("success", true)
            json.add("purged", purged)
            json.add(dropped: dropped)
        }
    }

    func ring(_ request: HTTPRequest) async throws -> HTTPResponse {
        guard let calls, let webhookSecrets else { throw BrokerError.audiencesOff }
        // First of all: nothing of a body is looked at that anybody may have sent.
        let isSigned = request.withBody { body in
            request.withHeader("x-cometchat-signature") { webhookSecrets.haveSigned(body, $0) } ?? false
        }
        guard isSigned else { throw BrokerError.invalidSignature }
        try RequestCharges.current?.becomeBackEnd(named: "webhooks")
        switch try request.fields({ CallBody($0) }) {
        case .call(let invitation, let dropped):
            let receipt = try await calls.ring(invitation)
            return .json(200) { json in
                json.add("success", true)
                json.add("rang", receipt.rang)
                if receipt.throttled > 0 { json.add("throttled", receipt.throttled) }
                if receipt.isRepeated { json.add("repeated", true) }
                json.add(dropped: dropped)
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
