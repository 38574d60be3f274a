import Broker
import HTTPServer
import JSON
import Policy
import Sealing
import Vocabulary

/// Routes of rooms.
extension API {
    func createRoom(_ request: HTTPRequest) async throws -> HTTPResponse {
        let limits = broker.policies.rooms
        let (create, dropped) = try request.fields { body -> (CreateRoom, [String])? in
            let joinid = body.joinid(limits)
            let life = body.seconds("expiresInSeconds", limits.roomLifeSeconds) ?? limits.roomLifeDefaultSeconds
            let codes = limits.codeLifeSeconds
            let code = body.seconds(
                "joinExpiresInSeconds", codes.clamped(to: codes.lowerBound...max(life, codes.lowerBound)))
            let client = body.name("client1", required: true)
            let address = body.address("client1_token", .alert, of: broker.settings)
            guard let joinid, let client else { return nil }
            let create = CreateRoom(
                joinid: joinid, lifeSeconds: life, codeLifeSeconds: limits.codeLifeSeconds(asked: code, roomSeconds: life),
                client: client, address: address)
            return (create, body.dropped)
        }
        let room = try await broker.rooms.create(create, from: proxies.origin(of: request))
        return Self.membership(room, status: room.isNew ? 201 : 200, dropped)
    }

    func acceptRoom(_ request: HTTPRequest) async throws -> HTTPResponse {
        let limits = broker.policies.rooms
        let (accept, dropped) = try request.fields { body -> (AcceptRoom, [String])? in
            let joinid = body.joinid(limits)
            let client = body.name("client2", required: true)
            let address = body.address("client2_token", .alert, of: broker.settings)
            guard let joinid, let client else { return nil }
            return (AcceptRoom(joinid: joinid, client: client, address: address), body.dropped)
        }
        return Self.membership(try await broker.rooms.accept(accept, from: proxies.origin(of: request)), status: 200, dropped)
    }

    func roomStatus(_ request: HTTPRequest) async throws -> HTTPResponse {
        let status = try await broker.rooms.status(try capability(request))
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
        let purged = try await broker.rooms.close(try capability(request))
        return .json(200) { $0.add("purged", purged) }
    }

    func replaceToken(_ request: HTTPRequest) async throws -> HTTPResponse {
        let room = try bearer(request)
        let (caller, address, dropped) = try request.fields { body in
            let caller = Self.caller(room, body)
            let address = body.address("token", .alert, of: broker.settings, required: true)
            return if let caller, let address { (caller, address, body.dropped) } else { nil }
        }
        let (ref, expires) = try await broker.rooms.replaceToken(caller, with: address)
        return .json(200) { json in
            json.add("ref", plain: ref.hex.span)
            json.add("expiresAt", timeMs: expires)
            json.add(dropped: dropped)
        }
    }

    func withdrawToken(_ request: HTTPRequest) async throws -> HTTPResponse {
        let (caller, _, dropped) = try caller(request)
        let purged = try await broker.rooms.withdrawToken(caller)
        return .json(200) { json in
            json.add("purged", purged)
            json.add(dropped: dropped)
        }
    }

    func reportPresence(_ request: HTTPRequest) async throws -> HTTPResponse {
        let (caller, leaving, dropped) = try caller(request)
        let delivery = try await broker.rooms.report(caller, leaving: leaving)
        return .json(202) { json in
            json.add("delivery", delivery.rawValue)
            json.add(dropped: dropped)
        }
    }

    private func caller(_ request: HTTPRequest) throws -> (Caller, leaving: Bool, dropped: [String]) {
        let room = try bearer(request)
        // Without a bearer, the room id must be in the body.
        if room == nil, request.bodyCount == 0 { throw BrokerError.noCapability }
        return try request.fields { body in
            let caller = Self.caller(room, body)
            let leaving = body.choice("leaving") ?? false
            return caller.map { ($0, leaving, body.dropped) }
        }
    }

    /// Reads the caller. The room id is the bearer or in the body.
    private static func caller(_ bearer: RoomID?, _ body: RequestBody) -> Caller? {
        let room = body.room(orBearer: bearer)
        let client = body.name("client", required: true)
        let member = body.member()
        return if let room, let client { Caller(room: room, client: client, member: member) } else { nil }
    }

    private func capability(_ request: HTTPRequest) throws -> RoomID {
        guard let room = try bearer(request) else { throw BrokerError.noCapability }
        return room
    }

    /// Returns the room id of `Authorization: Bearer`, or nil without this header.
    /// - Throws: `.malformedCapability` if it isn't a room id.
    private func bearer(_ request: HTTPRequest) throws -> RoomID? {
        let found = try request.withBearer { value in try RoomID(base64url: value) }
        guard let bearer = found else { return nil }
        guard let room = bearer else { throw BrokerError.malformedCapability }
        return room
    }

    private static func membership(_ room: Membership, status: UInt16, _ dropped: [String]) -> HTTPResponse {
        .json(status) { json in
            json.add("roomid", room.room)
            if let member = room.member { json.add("member", member) }
            json.add("expiresAt", timeMs: room.expires)
            if let end = room.joinExpires { json.add("joinExpiresAt", timeMs: end) }
            if let ref = room.ref { json.add("ref", plain: ref.hex.span) }
            json.add(dropped: dropped)
        }
    }
}
