import Policy
public import Sealing
import Storage
import Vocabulary

// An approval waits for one answer or for its timeout. It is stored as a timer with a sealed note that names its user.
extension Companion {
    /// The sealed content of an approval: its user, its session, and the back end that hears of its end.
    struct RequestContent {
        var user: [UInt8]
        var session: [UInt8]
        /// The back end that asked.
        var creator: [UInt8]

        /// Each name after its length in one byte.
        var encoded: [UInt8] { [user, session, creator].flatMap { [UInt8($0.count)] + $0 } }

        init(user: [UInt8], session: [UInt8], creator: [UInt8]) {
            (self.user, self.session, self.creator) = (user, session, creator)
        }

        init?(_ bytes: [UInt8]) {
            var rest = bytes[...]
            var parts: [[UInt8]] = []
            while let count = rest.popFirst() {
                guard rest.count >= Int(count) else { return nil }
                parts.append(Array(rest.prefix(Int(count))))
                rest = rest.dropFirst(Int(count))
            }
            guard parts.count == 3 else { return nil }
            (user, session, creator) = (parts[0], parts[1], parts[2])
        }

        /// Returns nil if the row does not open.
        init?(_ timer: TimerRecord, _ keys: KeyRing) throws(BrokerError) {
            let place = ExpirySlot(generation: timer.generation, expiryMs: timer.expires)
            let note = try ifItOpens { () throws(SealingError) in
                try keys.openNote(timer.sealed.span, .timer, place, [timer.id.bytes], block: 128)
            }
            guard let note else { return nil }
            self.init(note)
        }
    }

    /// Marks the row of a question. A question has no answer here: its row only maps its back end's own id to it.
    static let question: UInt8 = .max

    /// A new row for an approval, or for a question.
    /// - Parameter ownID: the back end's own id for it.
    func timer(
        _ id: RequestID, user: [UInt8], session: [UInt8], creator: [UInt8], ownID: [UInt8]?, isQuestion: Bool = false
    ) async throws(BrokerError) -> TimerRecord {
        guard let limits = audiences.limits.approvals else { throw .storageUnavailable }
        let now = time.now
        let due = now + limits.answerableMs
        let place = ExpirySlot(generation: keys.currentGeneration, expiryMs: now + limits.keptMs)
        let content = RequestContent(user: user, session: session, creator: creator)
        let sealed = try available { () throws(SealingError) in
            try keys.sealNote(content.encoded, .timer, place, [id.bytes], block: 128)
        }
        var names: RequestNames?
        if let ownID {
            let place = await audiences.place(.request)
            names = RequestNames(
                user: try await audiences.index(.request, place, user, ownID),
                creator: try await audiences.index(.request, place, creator, ownID))
        }
        return TimerRecord(
            id: id, due: due, expires: place.expiryMs, generation: place.generation, answer: isQuestion ? Self.question : 0,
            sealed: sealed, names: names)
    }

    typealias Request = (timer: TimerRecord, content: RequestContent)

    /// Returns nil if there is no such request, if it is over, or if it does not open.
    func request(_ id: RequestID) async throws(BrokerError) -> Request? {
        try opened(try await store.read { try $0.timer(id) })
    }

    /// Returns the request of this name, which may be another user's.
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

    /// Clears an approval's or a question's notification on the user's devices, except the one with this token. The request stays open.
    /// - Returns: how many devices are told. Nil if the request is unknown or another user's.
    /// - Throws: `.tooManyPushes`, and then nobody is told.
    public func clearApproval(
        _ principal: Principal, request name: RequestName, excluding: Secret?
    ) async throws(BrokerError) -> Int? {
        guard let (timer, content) = try await request(name, by: principal), content.user == principal.user else { return nil }
        try await audiences.takeEvent(of: principal.user)
        for _ in 0..<5 {
            let fanout = try await clearing(
                timer.id, of: principal.user, excluding: excluding, reason: "approved_on_other_device")
            if try await audiences.apply(fanout) == .done { return fanout.pushes }
        }
        throw .storageUnavailable
    }

    /// Answers an approval, once. All other devices clear it, and the back end is told.
    /// - Parameters:
    ///   - excluding: the token of the device that answers.
    /// - Returns: false if it is unknown or another user's, or was answered, or timed out. The caller is not told which.
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
                await edge?.tell(backEnd: content.creator, message)
                await edge?.tell(user: content.user, message)
                return true
            case .settled, .repeated: return false
            case .changed, .leftOut: continue
            }
        }
        throw .storageUnavailable
    }

    /// Rewrites waiting updates of the session's Live Activities that ask for this answer: they show that the session goes on.
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

    /// The state of an approval, for its user and for the back end that asked. Returns nil for others, and if the answer is no longer kept.
    public func approval(_ principal: Principal, request name: RequestName) async throws(BrokerError) -> Approval? {
        guard let (timer, content) = try await request(name, by: principal),
            content.user == principal.user || principal.isBackEnd && content.creator == principal.user,
            let state = Approval.State(rawValue: timer.answer)
        else { return nil }
        // The timeout has passed, but its timer has not been handled yet.
        let isOver = state == .pending && timer.due <= time.now
        return Approval(state: isOver ? .timedOut : state, expires: timer.due, session: content.session)
    }

    /// Nobody answered in time. Every device clears the approval, and the back end is told.
    func timedOut(_ timer: TimerRecord) async throws(BrokerError) {
        let answer = Approval.State.timedOut.rawValue
        guard let content = try RequestContent(timer, keys) else {
            // The row was edited. Settle it without telling anyone.
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
        await edge?.tell(backEnd: content.creator, message)
        await edge?.tell(user: content.user, message)
    }
}
