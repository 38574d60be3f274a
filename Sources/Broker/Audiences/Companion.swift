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
    var edge: (any CompanionSockets)?

    public init(audiences: Audiences) async {
        loop = audiences.loop
        shared = audiences.shared
        self.audiences = audiences
        shared.neighbors?.attach(self)
        await audiences.setTimedOut { [weak self] timer async throws(BrokerError) in try await self?.timedOut(timer) }
    }

    /// Sets the receiver of messages to sockets.
    public func setEdge(_ edge: any CompanionSockets) { self.edge = edge }

    /// Sends news to the sockets of a user or a back end, at all nodes.
    func send(_ message: CompanionMessage, to receiver: CompanionReceiver) async {
        shared.neighbors?.post(.news(receiver, message))
        await sendHere(message, to: receiver)
    }

    func sendHere(_ message: CompanionMessage, to receiver: CompanionReceiver) async {
        if receiver.isBackEnd {
            await edge?.send(backEnd: receiver.name, message)
        } else {
            await edge?.send(user: receiver.name, message)
        }
    }

    private func tell(_ content: RequestContent, _ message: CompanionMessage) async {
        await send(message, to: CompanionReceiver(name: content.creator, isBackEnd: true))
        await send(message, to: CompanionReceiver(name: content.user, isBackEnd: false))
    }

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
    ///   - activity: the app's own name for it, like `session`. At most 128 bytes each.
    ///   - previous: the activity's previous token, which is destroyed.
    /// - Throws: what `registerDevice` throws.
    public func registerActivity(
        _ principal: Principal, token: Secret, activity: [UInt8], session: [UInt8], previous: Secret?,
        environment: PushEnvironment?, topic: String?
    ) async throws(BrokerError) -> Registered {
        try await audiences.register(
            Registration(
                audience: principal.user, owner: principal.user, token: token, kind: .liveActivity, environment: environment,
                topic: topic, activity: (activity, session), previous: previous))
    }

    /// Destroys the token of a device or a Live Activity.
    /// - Returns: false if this user has no such registration.
    public func delete(_ principal: Principal, registration id: RegistrationID) async throws(BrokerError) -> Bool {
        let found = try await audiences.registrations(of: principal.user).filter { $0.id == id }
        return try await audiences.unregister(found) > 0
    }

    /// Returns the caller's registrations. Live Activities are in the order of their last seals.
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

    /// Removes a session's notifications from the caller's devices, and ends its Live Activities.
    /// - Returns: the number of pushes to devices and Live Activities.
    /// - Throws: `.tooManyPushes` if there is no room for all of them. Then none is sent.
    public func clearSession(_ principal: Principal, session: [UInt8]) async throws(BrokerError) -> Int {
        try await audiences.chargeEvent(of: principal.user)
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

    /// Builds the pushes that remove a request's notification from the user's devices.
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

    /// Builds the last pushes to the session's Live Activities.
    func ending(_ session: [UInt8], of user: [UInt8], success: Bool) async throws(BrokerError) -> Fanout {
        try await audiences.ends(
            AudienceEvent(
                template: "activity_end", collapse: .session(session),
                fields: ["status": .plain(.choice(success ? "completed" : "error"))]),
            to: audiences.activities(of: user, session: session), of: user)
    }
}

// An approval waits for one answer or for its timeout. It is stored as a timer with a sealed note that names its user.
extension Companion {
    /// The sealed content of an approval: its user, its session, and the back end that gets its answer.
    struct RequestContent {
        var user: [UInt8]
        var session: [UInt8]
        /// The back end that asked.
        var creator: [UInt8]

        /// Each name follows its length in one byte.
        var encoded: [UInt8] {
            var bytes: [UInt8] = []
            for name in [user, session, creator] { bytes.append(name: name) }
            return bytes
        }

        init(user: [UInt8], session: [UInt8], creator: [UInt8]) {
            (self.user, self.session, self.creator) = (user, session, creator)
        }

        init?(_ bytes: [UInt8]) {
            var rest = bytes[...]
            guard let user = rest.popName(), let session = rest.popName(), let creator = rest.popName(), rest.isEmpty else {
                return nil
            }
            (self.user, self.session, self.creator) = (user, session, creator)
        }

        /// Returns nil if the row does not open.
        init?(_ timer: TimerRecord, _ keys: KeyRing) throws(BrokerError) {
            let slot = ExpirySlot(generation: timer.generation, expiryMs: timer.expires)
            let note = try ifItOpens { () throws(SealingError) in
                try keys.openNote(timer.sealed.span, .timer, slot, [timer.id.bytes], block: 128)
            }
            guard let note else { return nil }
            self.init(note)
        }
    }

    /// Marks the row of a question. Questions are not answered at the broker. The row only maps the back end's own id to the question.
    static let question: UInt8 = .max

    /// Builds the row of an approval, or of a question.
    /// - Parameter ownID: the back end's own id for it.
    func timer(
        _ id: RequestID, user: [UInt8], session: [UInt8], creator: [UInt8], ownID: [UInt8]?, isQuestion: Bool = false
    ) async throws(BrokerError) -> TimerRecord {
        guard let limits = audiences.limits.approvals else { throw .storageUnavailable }
        let now = time.now
        let due = now + limits.answerableMs
        let slot = ExpirySlot(generation: keys.currentGeneration, expiryMs: now + limits.keptMs)
        let content = RequestContent(user: user, session: session, creator: creator)
        let sealed = try available { () throws(SealingError) in
            try keys.sealNote(content.encoded, .timer, slot, [id.bytes], block: 128)
        }
        var names: RequestNames?
        if let ownID {
            let slot = await audiences.expirySlot(for: .request)
            names = RequestNames(
                user: try await audiences.index(.request, slot, user, ownID),
                creator: try await audiences.index(.request, slot, creator, ownID))
        }
        return TimerRecord(
            id: id, due: due, expires: slot.expiryMs, generation: slot.generation, answer: isQuestion ? Self.question : 0,
            sealed: sealed, names: names)
    }

    typealias Request = (timer: TimerRecord, content: RequestContent)

    /// Returns nil if the request is unknown, is over, or does not open.
    func request(_ id: RequestID) async throws(BrokerError) -> Request? {
        try opened(try await store.read { try $0.timer(id) })
    }

    /// Returns the request of this name. The request may belong to another user.
    private func request(_ name: RequestName, by principal: Principal) async throws(BrokerError) -> Request? {
        if let id = name.id, let found = try await request(id) { return found }
        guard let own = name.own else { return nil }
        let indexes = try await audiences.indexes(.request, .request, [principal.user, own])
        for namer in principal.isBackEnd ? [RequestNamer.user, .creator] : [.user] {
            let found = try await store.read { try $0.timer(named: indexes, by: namer) }
            if let request = try opened(found) { return request }
        }
        return nil
    }

    private func opened(_ found: TimerRecord?) throws(BrokerError) -> Request? {
        guard let found, found.expires > time.now, let content = try RequestContent(found, keys) else { return nil }
        return (found, content)
    }

    /// Removes the notification of an approval or a question from the user's devices, except the one with this token. The request stays open.
    /// - Returns: the number of pushes. Nil if the request is unknown or another user's.
    /// - Throws: `.tooManyPushes` if there is no room for all of them. Then none is sent.
    public func clearApproval(
        _ principal: Principal, request name: RequestName, excluding: Secret?
    ) async throws(BrokerError) -> Int? {
        guard let (timer, content) = try await request(name, by: principal), content.user == principal.user else { return nil }
        try await audiences.chargeEvent(of: principal.user)
        for _ in 0..<5 {
            let fanout = try await clearing(
                timer.id, of: principal.user, excluding: excluding, reason: "approved_on_other_device")
            if try await audiences.apply(fanout) == .done { return fanout.pushes }
        }
        throw .storageUnavailable
    }

    /// Answers an approval, once. All other devices remove its notification, and the back end gets the answer.
    /// - Parameter excluding: the token of the device that answers.
    /// - Returns: false if the approval is unknown, another user's, answered, or timed out. The caller can't distinguish these.
    public func respond(
        _ principal: Principal, request name: RequestName, approved: Bool, excluding: Secret?
    ) async throws(BrokerError) -> Bool {
        for _ in 0..<5 {
            guard let (timer, content) = try await request(name, by: principal), content.user == principal.user,
                timer.answer == 0, timer.due > time.now
            else { return false }
            let id = timer.id
            let answer: Approval.State = approved ? .approved : .denied
            var fanout = try await withdrawal(of: id, content)
            fanout += try await clearing(id, of: content.user, excluding: excluding, reason: "approved_on_other_device")
            fanout.change.timer = .settle(id: timer.id, expires: timer.expires, answer: answer.rawValue)
            switch try await audiences.apply(fanout) {
            case .done:
                let message = CompanionMessage.approvalResponse(request: id, session: content.session, approved: approved)
                await tell(content, message)
                return true
            case .settled, .repeated: return false
            case .changed, .leftOut: continue
            }
        }
        throw .storageUnavailable
    }

    /// Rewrites waiting updates of the session's Live Activities that ask for this answer, so that they show the session at work.
    private func withdrawal(of id: RequestID, _ content: RequestContent) async throws(BrokerError) -> Fanout {
        var fanout = Fanout()
        for activity in try await audiences.activities(of: content.user, session: content.session) {
            guard var (_, waiting) = try await audiences.waiting(of: activity), waiting.template == "activity_approval",
                waiting.fields["requestId"] == .handle(Handle(id))
            else { continue }
            waiting.template = "activity_state"
            waiting.fields["requestId"] = nil
            waiting.fields["status"] = .choice("processing")
            fanout.change.waits.append(
                try await audiences.wait(waiting, of: content.user, for: activity, until: activity.opens))
        }
        return fanout
    }

    /// Returns the state of an approval to its user and to the back end that asked. Returns nil for other callers, and after the approval's row
    /// has expired.
    public func approval(_ principal: Principal, request name: RequestName) async throws(BrokerError) -> Approval? {
        guard let (timer, content) = try await request(name, by: principal),
            content.user == principal.user || principal.isBackEnd && content.creator == principal.user,
            let state = Approval.State(rawValue: timer.answer)
        else { return nil }
        // The timeout has passed, but its timer has not been handled yet.
        let isOver = state == .pending && timer.due <= time.now
        return Approval(state: isOver ? .timedOut : state, expires: timer.due, session: content.session)
    }

    /// Ends an approval that nobody has answered in time. Every device removes its notification, and the back end is informed.
    func timedOut(_ timer: TimerRecord) async throws(BrokerError) {
        let answer = Approval.State.timedOut.rawValue
        guard let content = try RequestContent(timer, keys) else {
            // The row was edited. Settle it without any message.
            var fanout = Fanout()
            fanout.change.timer = .settle(id: timer.id, expires: timer.expires, answer: answer)
            _ = try await audiences.apply(fanout)
            return
        }
        var fanout = try await withdrawal(of: timer.id, content)
        fanout += try await clearing(timer.id, of: content.user, excluding: nil, reason: "timed_out")
        fanout.change.timer = .settle(id: timer.id, expires: timer.expires, answer: answer)
        guard try await audiences.apply(fanout) == .done else { return }
        let message = CompanionMessage.approvalTimeout(request: timer.id, session: content.session)
        await tell(content, message)
    }
}

/// A caller's name for a request: the broker's id, or the back end's own id for the request. Both are set if the text could be either.
public struct RequestName: Sendable, Equatable {
    public var id: RequestID?
    /// 1 to 128 bytes.
    public var own: [UInt8]?

    public init(id: RequestID? = nil, own: [UInt8]? = nil) {
        self.id = id
        self.own = own
    }
}

/// The state of an approval.
public struct Approval: Sendable, Equatable {
    public enum State: UInt8, Sendable {
        case pending = 0
        case approved, denied, timedOut
    }

    public var state: State
    /// When it times out or timed out, unix ms.
    public var expires: UInt64
    /// The back end's own name for the session.
    public var session: [UInt8]
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
