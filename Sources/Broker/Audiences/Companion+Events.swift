import Policy
import Sealing
import Storage
public import Vocabulary

/// An event of a session, as a companion's back end reports it. It contains no text: names, summaries and questions are dropped before.
public enum CompanionEvent: Sendable, Equatable {
    case approvalRequest
    case question
    /// A task is done, or has failed.
    case complete(success: Bool)
    case progress(SessionProgress)
    /// The new state, a word that the policy lists, and the previous one as the caller sent it.
    case state(String, before: String? = nil)
}

/// Numbers of a running session. Nil if the caller did not send them.
public struct SessionProgress: Sendable, Equatable {
    public var elapsedSeconds: Int?
    public var completed: Int?
    public var total: Int?

    public init(elapsedSeconds: Int? = nil, completed: Int? = nil, total: Int? = nil) {
        self.elapsedSeconds = elapsedSeconds
        self.completed = completed
        self.total = total
    }
}

/// The result of an event. All of it is durable.
public struct EventReceipt: Sendable, Equatable {
    /// The broker's id of an approval or a question.
    public var request: RequestID?
    /// When an approval times out, unix ms.
    public var expires: UInt64?
    /// Pushes that leave now, and updates of Live Activities that wait for their window.
    public var pushes = 0
    /// Pushes beyond a token's budget.
    public var throttled = 0
    /// Pushes that are not sent to browsers, because they show nothing there.
    public var skipped = 0
    /// True if the event was handled before. Then nothing was done.
    public var isRepeated = false
}

/// The kind of a session's client.
public enum ClientType: String, Sendable, CaseIterable {
    case ios, desktop, web
}

/// A message to a companion's socket.
public enum CompanionMessage: Sendable, Equatable {
    case approvalResponse(request: RequestID, session: [UInt8], approved: Bool)
    case approvalTimeout(request: RequestID, session: [UInt8])
    /// The back end that asked no longer needs the answer.
    case approvalWithdrawn(request: RequestID, session: [UInt8])
    /// An approval waits for its answer until `expires`, unix ms.
    case approvalRequest(request: RequestID, session: [UInt8], expires: UInt64)
    case progress(SessionProgress, session: [UInt8])
    case state(String, before: String?, session: [UInt8])
}

extension CompanionMessage {
    /// The approval that has ended.
    var ended: RequestID? {
        switch self {
        case .approvalResponse(let request, _, _), .approvalTimeout(let request, _), .approvalWithdrawn(let request, _): request
        case .approvalRequest, .progress, .state: nil
        }
    }
}

/// Reaches the sockets of sessions, which belong to the edge.
public protocol CompanionSockets: Sendable {
    /// Sends news to all sockets of a user or a back end.
    func send(_ message: CompanionMessage, to receiver: CompanionReceiver) async
}

extension Companion {
    /// Handles an event of a session. When this returns, every push that it causes is durable.
    ///
    /// - Parameters:
    ///   - user: the session's user. Nil for the caller. A back end may name anyone, a user only itself.
    ///   - eventID: the caller's name for the event, at most 128 bytes. A second event of this name does nothing.
    ///   - ownID: the caller's own id for an approval or a question, at most 128 bytes. It is kept as a keyed index.
    /// - Throws: `.missingField` and `.anotherUser` if the caller may not name the user; `.tooManyRequests`; `.outOfRange` if the policy does not
    ///   allow a value; `.tooManyPushes`. Then nothing of the event is kept.
    public func take(
        _ event: CompanionEvent, of user: [UInt8]?, session: [UInt8], eventID: [UInt8]?, ownID: [UInt8]? = nil,
        from principal: Principal, charging payer: RequestCharges?
    ) async throws -> EventReceipt {
        let user = try Self.subject(user, principal)
        try await audiences.chargeEvent(of: user)
        // A failed try means that something else happened in the session meanwhile.
        return try await retrying(8) { _ in
            var seen: SeenRecord?
            if let eventID { seen = try await audiences.repeatMark(user, session, eventID, principal.callerSpace) }
            var (fanout, receipt, news) = try await fanout(
                of: event, user: user, session: session, eventID: eventID, ownID: ownID, creator: principal)
            fanout.change.seen = seen
            switch try await audiences.apply(fanout, charging: payer) {
            case .done:
                receipt.pushes = fanout.pushes
                receipt.throttled = fanout.throttled
                receipt.skipped = fanout.skipped
                if let news { await send(news, to: CompanionReceiver(name: user, isBackEnd: false)) }
                return receipt
            case .repeated:
                // The caller may have lost the first answer.
                return try await self.receipt(of: eventID ?? [], session, of: user, by: principal)
            case .changed, .settled, .leftOut: return nil
            }
        }
    }

    /// Returns the user for whom the caller acts. A back end may name anyone, a user only itself.
    static func subject(_ user: [UInt8]?, _ principal: Principal) throws -> [UInt8] {
        guard let user else {
            guard !principal.isBackEnd else { throw BrokerError.missingField("userId") }
            return principal.user
        }
        guard principal.isBackEnd || user == principal.user else { throw BrokerError.anotherUser }
        return user
    }

    private func fanout(
        of event: CompanionEvent, user: [UInt8], session: [UInt8], eventID: [UInt8]?, ownID: [UInt8]?, creator: Principal
    ) async throws -> (Fanout, EventReceipt, news: CompanionMessage?) {
        var receipt = EventReceipt()
        var fanout = audiences.newFanout()
        var news: CompanionMessage?
        let current = try await audiences.session(user, session)
        let named = AudienceEvent.Value.session(session)
        let counted = secondsOf(current)
        let elapsed = event.elapsedSeconds ?? counted
        var change: SessionChange?
        // The next event without an elapsed time counts on from this one's.
        let started = time.now - min(UInt64(clamping: elapsed), time.now / 1_000) * 1_000
        if let current {
            if elapsed != counted { change = .restart(session: current.session, started: started) }
        } else {
            var new = try await audiences.newSession(user, session)
            new.started = started
            change = .set(new, after: nil)
        }

        switch event {
        case .approvalRequest:
            var id = RequestID.random()
            if let eventID {
                let slot = await audiences.expirySlot(for: .session)
                id = try await requestID(of: eventID, session, of: user, by: creator, at: slot)
            }
            let timer = try await timer(id, user: user, session: session, creator: creator, ownID: ownID)
            (receipt.request, receipt.expires) = (timer.id, timer.due)
            news = .approvalRequest(request: timer.id, session: session, expires: timer.due)
            let request = AudienceEvent.Value.plain(.handle(Handle(timer.id)))
            fanout += try await alert(
                "approval_request", ["requestId": request, "sessionId": named], collapse: request, user)
            fanout += try await update(
                "activity_approval", ["requestId": request], elapsed: elapsed, session: session, user)
            fanout.change.timer = try await beginning(timer, user: user, session: session, creator: creator)
        case .question:
            let id = RequestID.random()
            receipt.request = id
            let question = AudienceEvent.Value.plain(.handle(Handle(id)))
            fanout += try await alert(
                "question_asked", ["questionId": question, "sessionId": named], collapse: question, user)
            fanout += try await update("activity_question", [:], elapsed: elapsed, session: session, user)
            if let ownID {
                fanout.change.timer = .begin(
                    try await timer(
                        id, user: user, session: session, creator: creator, ownID: ownID, isQuestion: true))
            }
        case .complete(let success):
            fanout += try await alert(success ? "task_complete" : "task_failed", ["sessionId": named], collapse: named, user)
            fanout += try await ending(session, of: user, success: success)
            change = current.map { .delete(expires: $0.expires, session: $0.session) }
        case .progress(let progress):
            var fields: [String: AudienceEvent.Value] = [:]
            if let completed = progress.completed, let total = progress.total {
                fields = ["completed": .plain(.number(completed)), "total": .plain(.number(total))]
            } else {
                fields = ["status": .plain(.choice("processing"))]
            }
            fanout += try await update(
                fields["total"] == nil ? "activity_state" : "activity_progress", fields,
                elapsed: elapsed, isGiven: progress.elapsedSeconds != nil, session: session, user)
            var reported = progress
            reported.elapsedSeconds = elapsed
            news = .progress(reported, session: session)
        case .state(let word, let before):
            fanout += try await update(
                "activity_state", ["status": .plain(.choice(word))], elapsed: elapsed, session: session, user)
            // A word that the policy does not list could be free text.
            let listed = before.flatMap { audiences.policy.states.contains($0) ? $0 : nil }
            news = .state(word, before: listed, session: session)
        }
        fanout.change.session = change
        if let code = reportCode(of: event, isPending: fanout.change.oldest?.request != nil) {
            if case .set(var new, let version, _) = change {
                new.reached = code
                fanout.change.session = .set(new, after: version)
            } else if let current, current.reached != code {
                fanout.change.session = .restart(
                    session: current.session, started: elapsed == counted ? current.started : started, reached: code)
            }
        }
        return (fanout, receipt, news)
    }

    private func alert(
        _ template: String, _ fields: [String: AudienceEvent.Value], collapse: AudienceEvent.Value, _ user: [UInt8]
    ) async throws -> Fanout {
        try await audiences.pushes(
            AudienceEvent(template: template, collapse: collapse, fields: fields), to: audiences.devices(of: user), of: user)
    }

    /// Returns the code of an event to store while an approval hides it: 0 working, 255 question, else the state's number. Nil keeps the stored
    /// code.
    private func reportCode(of event: CompanionEvent, isPending: Bool) -> UInt8? {
        switch event {
        case .approvalRequest: 0
        case .question: isPending ? Self.questionCode : nil
        case .progress: isPending ? 0 : nil
        case .state(let word, _): isPending ? stateCode(word) : nil
        case .complete: nil
        }
    }

    /// Returns 0 for a state without a number.
    private func stateCode(_ word: String) -> UInt8 {
        // The code is read when no approval is pending.
        guard word != "awaitingApproval", let index = audiences.policy.states.firstIndex(of: word), index + 1 < Self.questionCode
        else { return 0 }
        return UInt8(index + 1)
    }

    private static let questionCode: UInt8 = .max

    /// Returns what Live Activities show when a session's last approval has ended: what was reported meanwhile, or the session at work.
    func reported(in session: SessionRecord?) -> (template: String, fields: [String: AudienceEvent.Value]) {
        let states = audiences.policy.states
        let code = Int(session?.reached ?? 0)
        if code == Self.questionCode { return ("activity_question", [:]) }
        return (
            "activity_state", ["status": .plain(.choice((1..<states.count + 1).contains(code) ? states[code - 1] : "processing"))]
        )
    }

    /// Returns how long the session has lasted. 0 for an unknown one.
    func secondsOf(_ session: SessionRecord?) -> Int {
        session.map { Int(clamping: (time.now - min(time.now, $0.started)) / 1_000) } ?? 0
    }

    /// Builds an update of the session's Live Activities. While an approval is pending, it shows the oldest one, whatever has happened.
    ///
    /// - Parameters:
    ///   - isGiven: true if the caller sent the elapsed time. Otherwise the broker counted it, up to the template's limit.
    ///   - ended: an approval that this change ends. If it isn't the one that is shown, there is nothing to update.
    func update(
        _ template: String, _ fields: [String: AudienceEvent.Value], elapsed: Int, isGiven: Bool = false, session: [UInt8],
        _ user: [UInt8], ended: TimerRecord? = nil
    ) async throws -> Fanout {
        var event = activityEvent(template, fields, elapsed: elapsed, isGiven: isGiven, session)
        try await audiences.check(event, sent: Self.sent)
        let activities = try await audiences.activities(of: user, session: session)
        // An event looks for a pending approval even if it is shown nowhere: an activity may be registered before the approval ends.
        if activities.isEmpty, ended != nil { return audiences.newFanout() }
        let (list, now) = (try await indexes(of: .pending, user, session), time.now)
        let oldest = try await store.read { try $0.pendingTimers(listed: list, except: ended?.id, now: now).first }
        var fanout = audiences.newFanout()
        if let oldest {
            let request = AudienceEvent.Value.plain(.handle(Handle(oldest.id)))
            event = activityEvent("activity_approval", ["requestId": request], elapsed: elapsed, isGiven: false, session)
        }
        if let ended, let oldest, oldest.due < ended.due {
            // An older one is shown. Of two from the same millisecond, either may be shown.
        } else {
            fanout = try await audiences.updates(event, to: activities, of: user)
        }
        fanout.change.oldest = OldestRequest(list: list, except: ended?.id, request: oldest?.id)
        return fanout
    }

    private func activityEvent(
        _ template: String, _ fields: [String: AudienceEvent.Value], elapsed: Int, isGiven: Bool, _ session: [UInt8]
    ) -> AudienceEvent {
        let policy = audiences.policy
        let elapsed = isGiven ? elapsed : policy.clamped(elapsed, to: "elapsedSeconds", of: template)
        var fields = fields
        fields["elapsedSeconds"] = .plain(.number(policy.stepped(elapsed, in: "elapsedSeconds", of: template)))
        return AudienceEvent(template: template, collapse: .session(session), fields: fields)
    }

    /// Derives an approval's id from its event's name. It looks random without the key, and a caller who lost the answer gets the same id.
    private func requestID(
        of event: [UInt8], _ session: [UInt8], of user: [UInt8], by creator: Principal, at slot: ExpirySlot
    ) async throws -> RequestID {
        let index = try await audiences.index(
            .seen, slot, user, session, event, creator.callerSpace, Array("request".utf8))
        // The index begins with its expiry.
        return RequestID(high: index.second, low: index.third)
    }

    private func receipt(
        of event: [UInt8], _ session: [UInt8], of user: [UInt8], by creator: Principal
    ) async throws -> EventReceipt {
        for slot in await audiences.expirySlots(for: .session) {
            let id = try await requestID(of: event, session, of: user, by: creator, at: slot)
            if let (timer, _) = try await request(id) {
                return EventReceipt(request: id, expires: timer.due, isRepeated: true)
            }
        }
        return EventReceipt(isRepeated: true)
    }

    /// The caller's names of fields.
    private static let sent = [
        "status": "data.newState", "elapsedSeconds": "data.elapsedSeconds", "completed": "data.todoProgress.completed",
        "total": "data.todoProgress.total",
    ]

    // MARK: Handoff

    /// Makes this client the session's only active client. The previous one gets a silent push.
    ///
    /// - Parameters:
    ///   - user: the session's user. Nil for the caller.
    ///   - device: the client's own name for itself, at most 128 bytes. It is kept as a keyed hash.
    ///   - token: its push token. It is compared with the user's registrations and not kept.
    /// - Returns: true if it took over from another client.
    /// - Throws: `.missingField` and `.anotherUser` like `take`; `.tooManyPushes`. Then nothing has changed.
    public func claim(
        _ principal: Principal, of user: [UInt8]?, session name: [UInt8], device: [UInt8], type: ClientType, token: DeviceName?,
        charging payer: RequestCharges?
    ) async throws -> Bool {
        let user = try Self.subject(user, principal)
        // A failed try means that another claim won, and each claim wins once.
        return try await retrying(1_000) { _ in
            let current = try await audiences.session(user, name)
            var next: SessionRecord
            if let current { next = current } else { next = try await audiences.newSession(user, name) }
            let slot = ExpirySlot(generation: next.generation, expiryMs: next.expires)
            let client = try await audiences.index(.activeClient, slot, user, name, device)
            let isSame = current?.client == client
            // A repeated claim changes nothing, unless the client has registered a token meanwhile.
            if isSame, token == nil { return false }
            let own = try await audiences.registrations(of: user)
            var registration: RegistrationID?
            if let token { registration = try await audiences.registrations(own, for: token, owner: user).first?.id }
            if isSame, registration == nil || registration == current?.registration { return false }
            var fanout = audiences.newFanout()
            fanout.admission.add(try await audiences.chargeEvent(of: user))
            if !isSame, let before = current?.registration, before != registration {
                let handle = AudienceEvent.Value.session(name)
                fanout += try await audiences.pushes(
                    AudienceEvent(
                        // Not the session's own handle, so that no notification is replaced.
                        template: "session_handoff", collapse: .handle(kind: "handoff", id: name),
                        fields: ["sessionId": handle, "handedOffTo": .plain(.choice(type.rawValue))]),
                    to: own.filter { $0.id == before && $0.kind == .alert }, of: user)
            }
            (next.client, next.registration) = (client, registration)
            next.version += 1
            fanout.change.session = .set(next, after: current?.version)
            if try await audiences.apply(fanout, charging: payer) == .done { return current?.client != nil && !isSame }
            return nil
        }
    }
}

extension CompanionEvent {
    /// The session's elapsed time as the caller sent it.
    fileprivate var elapsedSeconds: Int? {
        guard case .progress(let progress) = self else { return nil }
        return progress.elapsedSeconds
    }
}

extension Principal {
    /// The namespace of a caller's ids. A user and a back end may have the same name.
    var callerSpace: [UInt8] { [isBackEnd ? 1 : 0] + user }
}

extension Policy {
    /// The states of a session. Empty without such a template.
    fileprivate var states: [String] {
        guard case .oneOf(let words)? = templates["activity_state"]?.fields.first(where: { $0.name == "status" })?.kind else {
            return []
        }
        return words
    }

    private func range(of name: String, in template: String) -> (range: ClosedRange<Int>, step: Int)? {
        guard case .number(let range, let step)? = templates[template]?.fields.first(where: { $0.name == name })?.kind else {
            return nil
        }
        return (range, step)
    }

    fileprivate func clamped(_ number: Int, to name: String, of template: String) -> Int {
        guard let (range, _) = range(of: name, in: template) else { return number }
        return min(max(number, range.lowerBound), range.upperBound)
    }

    /// Rounds a number in range down to the template's step, which limits how much of it Apple sees.
    fileprivate func stepped(_ number: Int, in name: String, of template: String) -> Int {
        guard let (range, step) = range(of: name, in: template), range.contains(number) else { return number }
        return number - (number - range.lowerBound) % step
    }
}
