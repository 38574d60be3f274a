import Broker
import HTTPServer
import Linux
import Policy
import Sealing

extension API {
    func createRoom(_ request: HTTPRequest) async throws -> HTTPResponse {
        let limits = broker.policies.rooms
        let (create, dropped) = try request.withBody { bytes throws(BrokerError) in
            let body = try RequestBody(bytes)
            let joinid = try body.joinid(bytes, limits)
            guard let life = try body.seconds("expiresInSeconds", bytes, limits.roomLifeSeconds) else {
                throw .missingField("expiresInSeconds")
            }
            let codeRange = limits.codeLifeSeconds.clamped(
                to: limits.codeLifeSeconds.lowerBound...max(life, limits.codeLifeSeconds.lowerBound))
            let asked = try body.seconds("joinExpiresInSeconds", bytes, codeRange)
            let create = CreateRoom(
                joinid: joinid, lifeSeconds: life, codeLifeSeconds: limits.codeLifeSeconds(asked: asked, roomSeconds: life),
                client: try body.client("client1", bytes), token: try body.token("client1_token", bytes),
                environment: try body.environment(bytes), topic: try body.topic(bytes))
            return (create, body.dropped)
        }
        let room = try await broker.create(create, from: proxies.origin(of: request))
        return Self.membership(room, status: room.isNew ? 201 : 200, dropped)
    }

    func acceptRoom(_ request: HTTPRequest) async throws -> HTTPResponse {
        let limits = broker.policies.rooms
        let (accept, dropped) = try request.withBody { bytes throws(BrokerError) in
            let body = try RequestBody(bytes)
            let accept = AcceptRoom(
                joinid: try body.joinid(bytes, limits), client: try body.client("client2", bytes),
                token: try body.token("client2_token", bytes), environment: try body.environment(bytes),
                topic: try body.topic(bytes))
            return (accept, body.dropped)
        }
        return Self.membership(try await broker.accept(accept, from: proxies.origin(of: request)), status: 200, dropped)
    }

    func roomStatus(_ request: HTTPRequest) async throws -> HTTPResponse {
        let status = try await broker.status(try capability(request))
        return .json(200) { json in
            json.add("expiresAt", timeMs: status.expires)
            json.add("accepted", status.accepted)
            json.add("creatorPresent", status.creatorPresent)
            json.add("joinerPresent", status.joinerPresent)
            json.add("creatorHasToken", status.creatorHasToken)
            json.add("joinerHasToken", status.joinerHasToken)
        }
    }

    func closeRoom(_ request: HTTPRequest) async throws -> HTTPResponse {
        let purged = try await broker.close(try capability(request))
        return .json(200) { $0.add("purged", purged) }
    }

    func replaceToken(_ request: HTTPRequest) async throws -> HTTPResponse {
        let room = try bearer(request)
        let (caller, token, environment, topic, dropped) = try request.withBody { bytes throws(BrokerError) in
            let body = try RequestBody(bytes)
            let caller = try Self.caller(room, body, bytes)
            guard let token = try body.token(bytes) else { throw .missingField("token") }
            return (caller, token, try body.environment(bytes), try body.topic(bytes), body.dropped)
        }
        let (ref, expires) = try await broker.replaceToken(caller, token: token, environment: environment, topic: topic)
        return .json(200) { json in
            json.add("ref", plain: ref.hex.span)
            json.add("expiresAt", timeMs: expires)
            if !dropped.isEmpty { json.add("dropped", dropped) }
        }
    }

    func withdrawToken(_ request: HTTPRequest) async throws -> HTTPResponse {
        let (caller, _, dropped) = try caller(request)
        let purged = try await broker.withdrawToken(caller)
        return .json(200) { json in
            json.add("purged", purged)
            if !dropped.isEmpty { json.add("dropped", dropped) }
        }
    }

    func reportPresence(_ request: HTTPRequest) async throws -> HTTPResponse {
        let (caller, leaving, dropped) = try caller(request)
        let delivery = try await broker.report(caller, leaving: leaving)
        return .json(202) { json in
            json.add("delivery", delivery.rawValue)
            if !dropped.isEmpty { json.add("dropped", dropped) }
        }
    }

    // MARK: Parts

    private func caller(_ request: HTTPRequest) throws -> (Caller, leaving: Bool, dropped: [String]) {
        let room = try bearer(request)
        return try request.withBody { bytes throws(BrokerError) in
            // Without a bearer the body must hold the room id; without both, that is what is wrong.
            if room == nil, bytes.isEmpty { throw .noCapability }
            let body = try RequestBody(bytes)
            return (try Self.caller(room, body, bytes), try body.flag("leaving", bytes), body.dropped)
        }
    }

    /// Who speaks: the room id comes as a bearer or in the body.
    private static func caller(_ room: RoomID?, _ body: RequestBody, _ bytes: Span<UInt8>) throws(BrokerError) -> Caller {
        let inBody = try body.room(bytes)
        guard let room = room ?? inBody else { throw .noCapability }
        return Caller(room: room, client: try body.client("client", bytes), member: try body.member(bytes))
    }

    private func capability(_ request: HTTPRequest) throws -> RoomID {
        guard let room = try bearer(request) else { throw BrokerError.noCapability }
        return room
    }

    /// The room id of `Authorization: Bearer`; nil without one.
    private func bearer(_ request: HTTPRequest) throws -> RoomID? {
        let found = try request.withBearer { value throws(SealingError) in try RoomID(base64url: value) }
        guard let bearer = found else { return nil }
        guard let room = bearer else { throw BrokerError.malformedCapability }
        return room
    }

    private static func membership(_ room: Membership, status: UInt16, _ dropped: [String]) -> HTTPResponse {
        .json(status) { json in
            _ = try? room.room.withBase64URL { json.add("roomid", plain: $0) }
            _ = try? room.member.withBase64URL { json.add("member", plain: $0) }
            json.add("expiresAt", timeMs: room.expires)
            if let ref = room.ref { json.add("ref", plain: ref.hex.span) }
            if !dropped.isEmpty { json.add("dropped", dropped) }
        }
    }
}
