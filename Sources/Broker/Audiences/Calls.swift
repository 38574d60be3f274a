public import EventLoop
import Policy
public import Sealing
import Storage
import Vocabulary

/// Rings phones: a call is pushed once, to all phones of its receiver.
public actor Calls: LoopActor {
    public nonisolated let loop: EventLoop
    public nonisolated let audiences: Audiences

    public init(audiences: Audiences) {
        loop = audiences.loop
        self.audiences = audiences
    }

    // MARK: Registrations

    /// Registers a phone's PushKit token for a user, or renews it.
    ///
    /// - Parameters:
    ///   - user: 1 to 128 bytes. A user may name only itself, a back end anyone.
    ///   - previous: the phone's previous token, which is destroyed.
    /// - Throws: `.anotherUser`, and what `Audiences.register` throws.
    public func register(
        _ principal: Principal, user: [UInt8], address: PushAddress, previous: DeviceName? = nil,
        charging payer: RequestCharges?
    ) async throws -> Registered {
        try Self.check(user, principal)
        return try await audiences.register(
            Registration(audience: user, owner: user, address: address, kind: .voip, previous: previous), charging: payer)
    }

    /// Destroys a user's PushKit token, or all of them if `token` is nil.
    /// - Returns: how many tokens were destroyed.
    /// - Throws: `.anotherUser`.
    public func delete(_ principal: Principal, user: [UInt8], token: DeviceName?) async throws -> Int {
        try Self.check(user, principal)
        var found = try await audiences.registrations(of: user)
        if let token { found = try await audiences.registrations(found, for: token, owner: user) }
        return try await audiences.unregister(found)
    }

    private static func check(_ user: [UInt8], _ principal: Principal) throws {
        guard principal.isBackEnd || user == principal.user else { throw BrokerError.anotherUser }
    }

    // MARK: Calls

    /// Rings the caller's own phones, with the caller as caller: `incoming_call` is the only template.
    /// - Throws: what `Audiences.test` throws.
    public func test(_ principal: Principal, charging payer: RequestCharges?) async throws -> EventReceipt {
        let none = AudienceEvent.Value.handle(kind: "test", id: [])
        return try await audiences.test(
            AudienceEvent(
                template: "incoming_call", collapse: none,
                fields: [
                    "sessionId": none, "callerUid": .handle(kind: "uid", id: principal.user),
                    "callType": .plain(.choice(CallInvitation.Media.audio.rawValue)),
                ]), of: principal.user, for: principal, charging: payer)
    }

    /// Rings all phones of the receiver, once for each session. Nothing is kept of a call that rings no phone.
    /// - Throws: `.tooManyPushes`, and what the store throws. Then no phone rings, and the call may be repeated.
    public func ring(_ call: CallInvitation, charging payer: RequestCharges?) async throws -> CallReceipt {
        let session = AudienceEvent.Value.handle(kind: "session", id: call.session)
        let event = AudienceEvent(
            template: "incoming_call", collapse: session,
            fields: [
                "sessionId": session, "callerUid": .handle(kind: "uid", id: call.caller),
                "callType": .plain(.choice(call.media.rawValue)),
            ])
        try await audiences.check(event)
        // A failed try means that one of the receiver's registrations changed meanwhile.
        return try await retrying { _ in
            var fanout = try await audiences.pushes(event, to: audiences.devices(of: call.receiver), of: call.receiver)
            guard fanout.pushes > 0 else { return CallReceipt(throttled: fanout.throttled, skipped: fanout.skipped) }
            fanout.change.seen = try await audiences.repeatMark(call.receiver, call.session)
            switch try await audiences.apply(fanout, charging: payer) {
            case .done: return CallReceipt(rang: fanout.pushes, throttled: fanout.throttled, skipped: fanout.skipped)
            case .repeated: return CallReceipt(isRepeated: true)
            case .changed, .settled, .leftOut: return nil
            }
        }
    }
}

/// A call from one user to another. It contains the app's own ids, 1 to 128 bytes each, and no names of people.
public struct CallInvitation: Sendable, Equatable {
    /// The media of the call.
    public enum Media: String, Sendable, CaseIterable {
        case audio, video
    }

    public var session: [UInt8]
    public var caller: [UInt8]
    public var receiver: [UInt8]
    public var media: Media

    public init(session: [UInt8], caller: [UInt8], receiver: [UInt8], media: Media) {
        self.session = session
        self.caller = caller
        self.receiver = receiver
        self.media = media
    }
}

/// The result of a call. All its pushes are durable.
public struct CallReceipt: Sendable, Equatable {
    /// Phones that get a push.
    public var rang = 0
    /// Phones whose token's budget is used up.
    public var throttled = 0
    /// Browsers that get no push, because the template has no text for them.
    public var skipped = 0
    /// True if this call has rung before. Then nothing was done.
    public var isRepeated = false

    public init(rang: Int = 0, throttled: Int = 0, skipped: Int = 0, isRepeated: Bool = false) {
        self.rang = rang
        self.throttled = throttled
        self.skipped = skipped
        self.isRepeated = isRepeated
    }
}
