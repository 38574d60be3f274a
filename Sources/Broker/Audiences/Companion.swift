public import EventLoop
import Policy
public import Sealing
import Storage
public import Vocabulary

/// The companion of an autonomous assistant: devices and Live Activities of a user, approvals, and which client has a session.
///
/// This actor decides which pushes an event causes. The policy has their contents.
public actor Companion: LoopActor {
    public nonisolated let loop: EventLoop
    public nonisolated let audiences: Audiences
    let store: StoreAccess
    let keys: KeyRing
    let time: BrokerTime
    var edge: (any CompanionSockets)?

    public init(audiences: Audiences) async {
        let shared = audiences.broker.shared
        loop = shared.loop
        store = shared.store
        keys = shared.keys
        time = shared.time
        self.audiences = audiences
        await audiences.setTimedOut { [weak self] timer async throws(BrokerError) in try await self?.timedOut(timer) }
    }

    public func setEdge(_ edge: any CompanionSockets) { self.edge = edge }

    // MARK: Registrations

    /// Registers a device's token for the caller, or renews it.
    ///
    /// - Parameters:
    ///   - environment: nil for the configured one. The same goes for `topic`, the app's bundle id.
    /// - Throws: `.appNotServed`, `.tooManyRegistrations`, and what the store throws.
    public func registerDevice(
        _ principal: Principal, token: Secret, environment: PushEnvironment?, topic: String?
    ) async throws(BrokerError) -> Registered {
        try await audiences.register(
            Registration(
                audience: principal.user, owner: principal.user, token: token, kind: .alert, environment: environment,
                topic: topic))
    }

    /// Registers a Live Activity's token, or renews it. With another token its window and its waiting update are carried over.
    ///
    /// - Parameters:
    ///   - activity: the app's name for it, as is `session`. At most 128 bytes each.
    ///   - previous: the activity's previous token, which is destroyed.
    /// - Throws: as `registerDevice`.
    public func registerActivity(
        _ principal: Principal, token: Secret, activity: [UInt8], session: [UInt8], previous: Secret?,
        environment: PushEnvironment?, topic: String?
    ) async throws(BrokerError) -> Registered {
        try await audiences.register(
            Registration(
                audience: principal.user, owner: principal.user, token: token, kind: .liveActivity, environment: environment,
                topic: topic, activity: (activity, session), previous: previous))
    }

    /// Destroys a token.
    /// - Parameter id: of a device or a Live Activity.
    /// - Returns: false if this user has no such registration.
    public func delete(_ principal: Principal, registration id: RegistrationID) async throws(BrokerError) -> Bool {
        let found = try await audiences.registrations(of: principal.user).filter { $0.id == id }
        return try await audiences.unregister(found) > 0
    }

    /// What the caller has registered. Live Activities are in the order in which they were sealed last.
    public func status(_ principal: Principal) async throws(BrokerError) -> CompanionStatus {
        let registrations = try await audiences.registrations(of: principal.user)
        var activities: [CompanionStatus.Activity] = []
        for registration in registrations where registration.kind == .liveActivity {
            guard let opened = try await audiences.open(registration, of: principal.user) else { continue }
            activities.append(
                CompanionStatus.Activity(
                    activity: opened.details.activity, session: opened.details.session, registered: opened.token.sealedAtMs))
        }
        return CompanionStatus(
            hasDevice: registrations.contains { $0.kind == .alert },
            activities: activities.sorted {
                $0.registered == $1.registered
                    ? $0.activity.lexicographicallyPrecedes($1.activity) : $0.registered < $1.registered
            })
    }

    // MARK: Clearing

    /// Takes a session's notifications from the caller's devices, and ends its Live Activities.
    /// - Returns: how many devices and Live Activities are told.
    /// - Throws: `.tooManyPushes`, and then nobody is told.
    public func clearSession(_ principal: Principal, session: [UInt8]) async throws(BrokerError) -> Int {
        try await audiences.takeEvent(of: principal.user)
        for _ in 0..<5 {
            var fanout = try await ending(session, of: principal.user, success: true)
            fanout.change.session = try await audiences.session(principal.user, session).map {
                .delete(expires: $0.expires, session: $0.session)
            }
            fanout += try await audiences.pushes(
                AudienceEvent(
                    template: "clear_session", collapse: .session(session),
                    fields: ["sessionId": .session(session)]),
                to: audiences.devices(of: principal.user), of: principal.user)
            if try await audiences.apply(fanout) == .done { return fanout.pushes }
        }
        throw .storageUnavailable
    }

    func clearing(
        _ request: RequestID, of user: [UInt8], excluding: Secret?, reason: String
    ) async throws(BrokerError) -> Fanout {
        var devices = try await audiences.devices(of: user)
        if let excluding {
            let excluded = try await audiences.registrations(devices, for: excluding, owner: user)
            devices.removeAll { excluded.contains($0) }
        }
        return try await audiences.pushes(
            AudienceEvent(
                template: "clear_approval", collapse: .plain(.handle(Handle(request))),
                fields: [
                    "requestId": .plain(.handle(Handle(request))), "clearApprovalId": .plain(.handle(Handle(request))),
                    "reason": .plain(.choice(reason)),
                ]), to: devices, of: user)
    }

    func ending(_ session: [UInt8], of user: [UInt8], success: Bool) async throws(BrokerError) -> Fanout {
        try await audiences.ends(
            AudienceEvent(
                template: "activity_end", collapse: .session(session),
                fields: ["status": .plain(.choice(success ? "completed" : "error"))]),
            to: audiences.activities(of: user, session: session), of: user)
    }
}
