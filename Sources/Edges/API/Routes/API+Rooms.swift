import Broker
import HTTPServer
import JSON
import Policy
import Sealing
import Vocabulary

/// Routes of rooms.
extension API {
    func createRoom(_ call: Call) async throws -> HTTPResponse {
        let limits = broker.policies.rooms
        let create = try call.fields { body -> CreateRoom? in
            let joinid = body.joinid(limits)
            let life = body.seconds("expiresInSeconds", limits.roomLifeSeconds) ?? limits.roomLifeDefaultSeconds
            let codes = limits.codeLifeSeconds
            let code = body.seconds(
                "joinExpiresInSeconds", codes.clamped(to: codes.lowerBound...max(life, codes.lowerBound)))
            let client = body.name("client1", required: true)
            let address = body.address("client1_token", .alert, of: broker.settings)
            guard let joinid, let client else { return nil }
            return CreateRoom(
                joinid: joinid, lifeSeconds: life, codeLifeSeconds: limits.codeLifeSeconds(asked: code, roomSeconds: life),
                client: client, address: address)
        }
        let room = try await broker.rooms.create(create, from: proxies.origin(of: call.request), charging: call.charges)
        return Self.membership(room, status: room.isNew ? 201 : 200, call)
    }

    func acceptRoom(_ call: Call) async throws -> HTTPResponse {
        let limits = broker.policies.rooms
        let accept = try call.fields { body -> AcceptRoom? in
            let joinid = body.joinid(limits)
            let client = body.name("client2", required: true)
            let address = body.address("client2_token", .alert, of: broker.settings)
            guard let joinid, let client else { return nil }
            return AcceptRoom(joinid: joinid, client: client, address: address)
        }
        return Self.membership(try await broker.rooms.accept(accept, from: proxies.origin(of: call.request)), status: 200, call)
    }

    func roomStatus(_ call: Call) async throws -> HTTPResponse {
        let status = try await broker.rooms.status(try capability(call))
        return call.answer { json in
            json.add("expiresAt", timeMs: status.expires)
            json.add("accepted", status.accepted)
            json.add("creatorPresent", status.creatorPresent)
            json.add("joinerPresent", status.joinerPresent)
            json.add("creatorHasToken", status.creatorHasToken)
            json.add("joinerHasToken", status.joinerHasToken)
        }
    }

    func closeRoom(_ call: Call) async throws -> HTTPResponse {
        let purged = try await broker.rooms.close(try capability(call))
        return call.answer { $0.add("purged", purged) }
    }

    func replaceToken(_ call: Call) async throws -> HTTPResponse {
        let room = try bearer(call)
        let (caller, address) = try call.fields { body in
            let caller = Self.caller(room, body)
            let address = body.address("token", .alert, of: broker.settings, required: true)
            return if let caller, let address { (caller, address) } else { nil }
        }
        let (ref, expires) = try await broker.rooms.replaceToken(caller, with: address, charging: call.charges)
        return call.answer { json in
            json.add("ref", plain: ref.hex.span)
            json.add("expiresAt", timeMs: expires)
        }
    }

    func withdrawToken(_ call: Call) async throws -> HTTPResponse {
        let (caller, _) = try caller(call)
        let purged = try await broker.rooms.withdrawToken(caller, charging: call.charges)
        return call.answer { json in
            json.add("purged", purged)
        }
    }

    func reportPresence(_ call: Call) async throws -> HTTPResponse {
        let (caller, leaving) = try caller(call)
        let delivery = try await broker.rooms.report(caller, leaving: leaving, charging: call.charges)
        return call.answer(202) { json in
            json.add("delivery", delivery.rawValue)
        }
    }

    func caller(_ call: Call) throws -> (Caller, leaving: Bool) {
        let room = try bearer(call)
        // Without a bearer, the room id must be in the body.
        if room == nil, call.request.bodyCount == 0 { throw BrokerError.noCapability }
        return try call.fields { body in
            let caller = Self.caller(room, body)
            let leaving = body.choice("leaving") ?? false
            return caller.map { ($0, leaving) }
        }
    }

    /// Reads the caller. The room id is the bearer or in the body.
    private static func caller(_ bearer: RoomID?, _ body: RequestBody) -> Caller? {
        let room = body.room(orBearer: bearer)
        let client = body.name("client", required: true)
        let member = body.member()
        return if let room, let client { Caller(room: room, client: client, member: member) } else { nil }
    }

    private func capability(_ call: Call) throws -> RoomID {
        guard let room = try bearer(call) else { throw BrokerError.noCapability }
        return room
    }

    /// Returns the room id of `Authorization: Bearer`, or nil without this header.
    /// - Throws: `.malformedCapability` if it isn't a room id.
    private func bearer(_ call: Call) throws -> RoomID? {
        let found = try call.request.withBearer { value in try RoomID(base64url: value) }
        guard let bearer = found else { return nil }
        guard let room = bearer else { throw BrokerError.malformedCapability }
        return room
    }

    private static func membership(_ room: Membership, status: UInt16, _ call: Call) -> HTTPResponse {
        call.answer(status) { json in
            json.add("roomid", room.room)
            if let member = room.member { json.add("member", member) }
            json.add("expiresAt", timeMs: room.expires)
            if let end = room.joinExpires { json.add("joinExpiresAt", timeMs: end) }
            if let ref = room.ref { json.add("ref", plain: ref.hex.span) }
        }
    }
}
