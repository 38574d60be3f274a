public import EventLoop
import Policy
public import Sealing
import Storage
public import Vocabulary

/// The companion app of an autonomous assistant: devices and Live Activities of a user, approvals, and a session's active client.
///
/// This actor decides which pushes an event causes. The policy has their contents.
public actor Companion: LoopActor, BrokerPart {
    public nonisolated let loop: EventLoop
    nonisolated let shared: Dependencies
    public nonisolated let audiences: Audiences
    nonisolated let sockets: any CompanionSockets

    /// - Parameter sockets: receives the companion's messages.
    public init(audiences: Audiences, sockets: any CompanionSockets) {
        loop = audiences.loop
        shared = audiences.shared
        self.audiences = audiences
        self.sockets = sockets
    }

    /// Sends what is due and ends approvals that nobody has answered in time, until the task is cancelled.
    public func run() async { await audiences.run { try await self.timedOut($0) } }

    /// Sends news to the sockets of a user or a back end, at all nodes.
    func send(_ message: CompanionMessage, to receiver: CompanionReceiver) async {
        shared.neighbors?.post(.news(receiver, message))
        await sockets.send(message, to: receiver)
    }

    func tell(_ content: RequestContent, _ message: CompanionMessage) async {
        if content.creator.isBackEnd { await send(message, to: content.creator) }
        await send(message, to: CompanionReceiver(name: content.user, isBackEnd: false))
    }

    // MARK: Registrations

    /// Registers a device's token for the caller, or renews it.
    /// - Throws: `.tooManyRegistrations`, and what the store throws.
    public func registerDevice(
        _ principal: Principal, address: PushAddress, charging payer: RequestCharges?
    ) async throws -> Registered {
        try await audiences.register(
            Registration(audience: principal.user, owner: principal.user, address: address, kind: .alert), charging: payer)
    }

    /// Registers a Live Activity's token, or renews it. With another token its window and its waiting update are carried over.
    ///
    /// - Parameters:
    ///   - activity: the app's own name for it, like `session`. At most 128 bytes each.
    ///   - previous: the activity's previous token, which is destroyed.
    /// - Throws: what `registerDevice` throws.
    public func registerActivity(
        _ principal: Principal, address: PushAddress, activity: [UInt8], session: [UInt8], previous: DeviceName?,
        charging payer: RequestCharges?
    ) async throws -> Registered {
        try await audiences.register(
            Registration(
                audience: principal.user, owner: principal.user, address: address, kind: .liveActivity,
                activity: (activity, session), previous: previous), charging: payer)
    }

    /// Destroys the token of a device or a Live Activity.
    /// - Returns: false if this user has no such registration.
    public func delete(_ principal: Principal, registration id: RegistrationID) async throws -> Bool {
        let found = try await audiences.registrations(of: principal.user).filter { $0.id == id }
        return try await audiences.unregister(found) > 0
    }

    /// Returns the caller's registrations. Live Activities are in the order of their last seals.
    public func status(_ principal: Principal) async throws -> CompanionStatus {
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

    /// Pushes to the caller's own devices.
    ///
    /// `task_complete` requires no action. The session's handle matches no session of the app.
    /// - Throws: what `Audiences.test` throws.
    public func test(_ principal: Principal, charging payer: RequestCharges?) async throws -> EventReceipt {
        let none = AudienceEvent.Value.handle(kind: "test", id: [])
        return try await audiences.test(
            AudienceEvent(template: "task_complete", collapse: none, fields: ["sessionId": none]), of: principal.user,
            for: principal, charging: payer)
    }

    // MARK: Clearing

    /// Removes a session's notifications from its user's devices, and ends its Live Activities. A back end also withdraws its pending approvals
    /// of this session.
    ///
    /// - Parameter user: the session's user. Nil for the caller. A back end may omit it if it asked only one user for approvals in this session
    ///   during the last ten minutes.
    /// - Returns: the number of devices and Live Activities that get a push.
    /// - Throws: `.missingField` and `.anotherUser` if the caller may not name the user. `.tooManyPushes` if there is no room for all pushes. Then
    ///   some approvals may be withdrawn, and a repeated call withdraws the others.
    public func clearSession(
        _ principal: Principal, of user: [UInt8]? = nil, session: [UInt8], charging payer: RequestCharges?
    ) async throws -> Int {
        var user = user
        if user == nil, principal.isBackEnd { user = try await onlyUser(of: session, askedBy: principal) }
        let subject = try Self.subject(user, principal)
        try await audiences.chargeEvent(of: subject)
        if principal.isBackEnd { try await withdrawAll(of: session, subject, askedBy: principal, charging: payer) }
        return try await retrying { _ in
            var fanout = try await ending(session, of: subject, success: true)
            fanout.change.session = try await audiences.session(subject, session).map {
                .delete(expires: $0.expires, session: $0.session)
            }
            fanout += try await audiences.pushes(
                AudienceEvent(
                    template: "clear_session", collapse: .session(session),
                    fields: ["sessionId": .session(session)]),
                to: audiences.devices(of: subject), of: subject)
            if try await audiences.apply(fanout, charging: payer) == .done { return fanout.pushes }
            return nil
        }
    }

    /// Builds the pushes that replace a request's notification on the user's devices. A running app then removes the text.
    func clearing(
        _ request: RequestID, of user: [UInt8], excluding: DeviceName?, because reason: ClearingReason
    ) async throws -> Fanout {
        var devices = try await audiences.devices(of: user)
        if let excluding {
            let excluded = try await audiences.registrations(devices, for: excluding, owner: user)
            devices.removeAll { excluded.contains($0) }
        }
        return try await audiences.pushes(
            AudienceEvent(
                // The collapse id of the push that asked: the phone shows this one in its place, even if the app doesn't run.
                template: reason.template, collapse: .plain(.handle(Handle(request))),
                fields: [
                    "requestId": .plain(.handle(Handle(request))), "clearApprovalId": .plain(.handle(Handle(request))),
                    "reason": .plain(.choice(reason.rawValue)),
                ]), to: devices, of: user)
    }

    /// Builds the last pushes to the session's Live Activities.
    func ending(_ session: [UInt8], of user: [UInt8], success: Bool) async throws -> Fanout {
        try await audiences.ends(
            AudienceEvent(
                template: "activity_end", collapse: .session(session),
                fields: ["status": .plain(.choice(success ? "completed" : "error"))]),
            to: audiences.activities(of: user, session: session), of: user)
    }
}

/// Why a notification is replaced, as the app reads it.
enum ClearingReason: String {
    case answered = "approved_on_other_device"
    case timedOut = "timed_out"
    case withdrawn

    /// Each text has a template of its own.
    var template: String { self == .answered ? "clear_approval" : "approval_over" }
}

/// `GET /api/push/status`.
public struct CompanionStatus: Sendable, Equatable {
    public struct Activity: Sendable, Equatable {
        public var activity: [UInt8]
        public var session: [UInt8]
        /// Unix ms.
        public var registered: UInt64
    }

    public var hasDevice: Bool
    public var activities: [Activity]
}
