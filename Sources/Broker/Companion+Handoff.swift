import Policy
public import Sealing
import Storage
import Vocabulary

extension Companion {
    /// A client of a session says that it is at work: it is the session's one client from now on, and the one before gets a silent push.
    ///
    /// - Parameters:
    ///   - user: whose session it is; nil for the caller's own.
    ///   - device: the client's own name for itself, at most 128 bytes; kept as a keyed hash.
    ///   - token: its push token, which is compared with the user's registrations and kept nowhere.
    /// - Returns: whether it took over from another.
    /// - Throws: `.missingField` and `.anotherUser` as `take`; `.tooManyPushes`, and then the session is whose it was.
    public func claim(
        _ principal: Principal, of user: [UInt8]?, session name: [UInt8], device: [UInt8], type: ClientType, token: Secret?
    ) async throws(BrokerError) -> Bool {
        let user = try Self.subject(user, principal)
        // Each loss is a claim that won, and each claim wins once.
        for _ in 0..<1_000 {
            let standing = try await audiences.session(user, name)
            var next: SessionRecord
            if let standing { next = standing } else { next = try await audiences.newSession(user, name) }
            let place = Place(generation: next.generation, expiryMs: next.expires)
            let client = try await audiences.index(.activeClient, place, user, name, device)
            let isSame = standing?.client == client
            // A client that says nothing new changes nothing; one may have registered its token since, or another one.
            if isSame, token == nil { return false }
            let own = try await audiences.registrations(of: user)
            var registration: RegistrationID?
            if let token { registration = try await audiences.registrations(own, for: token, owner: user).first?.id }
            if isSame, registration == nil || registration == standing?.registration { return false }
            let event = try await audiences.takeEvent(of: user)
            var fanout = Fanout()
            if !isSame, let before = standing?.registration, before != registration {
                let handle = AudienceEvent.Value.session(name)
                fanout = try await audiences.pushes(
                    AudienceEvent(
                        // Not the session's: it takes nothing from the screen.
                        template: "session_handoff", collapse: .handle(kind: "handoff", id: name),
                        fields: ["sessionId": handle, "handedOffTo": .plain(.choice(type.rawValue))]),
                    to: own.filter { $0.id == before && $0.kind == .alert }, of: user)
            }
            (next.client, next.registration) = (client, registration)
            next.version += 1
            fanout.change.session = .set(next, after: standing?.version)
            if try await audiences.apply(fanout) == .done { return standing?.client != nil && !isSame }
            event.cancel()
        }
        throw .storageUnavailable
    }
}
