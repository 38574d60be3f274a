import Policy
import Sealing
import Storage
public import Vocabulary

// An approval waits for one answer or for its timeout. It is stored as a timer with a sealed note that names its user.
extension Companion {
    /// The sealed content of an approval: its user, its session, and who asked.
    struct RequestContent {
        var user: [UInt8]
        var session: [UInt8]
        /// The back end that asked, which gets the answer. Or the user itself.
        var creator: CompanionReceiver

        /// `isBackEnd u8 || user || session || creator`. Each name follows its length in one byte.
        var encoded: [UInt8] {
            var bytes: [UInt8] = [creator.isBackEnd ? 1 : 0]
            for name in [user, session, creator.name] { bytes.append(name: name) }
            return bytes
        }

        init(user: [UInt8], session: [UInt8], creator: CompanionReceiver) {
            (self.user, self.session, self.creator) = (user, session, creator)
        }

        init?(_ bytes: [UInt8]) {
            var rest = bytes[...]
            guard let isBackEnd = rest.popFirst(), let user = rest.popName(), let session = rest.popName(),
                let creator = rest.popName(), rest.isEmpty
            else { return nil }
            self.init(user: user, session: session, creator: CompanionReceiver(name: creator, isBackEnd: isBackEnd != 0))
        }

        /// True if this back end asked. False for a user.
        func isAsked(by caller: Principal) -> Bool { creator.isBackEnd && creator == CompanionReceiver(caller) }

        /// Returns nil if the row does not open.
        init?(_ timer: TimerRecord, _ keys: KeyRing) throws {
            let slot = ExpirySlot(generation: timer.generation, expiryMs: timer.expires)
            let note = try ifItOpens {
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
        _ id: RequestID, user: [UInt8], session: [UInt8], creator: Principal, ownID: [UInt8]?, isQuestion: Bool = false
    ) async throws -> TimerRecord {
        guard let limits = audiences.limits.approvals else { throw BrokerError.storageUnavailable }
        let now = time.now
        let due = now + limits.answerableMs
        let slot = ExpirySlot(generation: keys.currentGeneration, expiryMs: now + limits.keptMs)
        let content = RequestContent(user: user, session: session, creator: CompanionReceiver(creator))
        let sealed = try keys.sealNote(content.encoded, .timer, slot, [id.bytes], block: 128)
        var names: RequestNames?
        if let ownID {
            let slot = await audiences.expirySlot(for: .request)
            names = RequestNames(
                user: try await audiences.index(.request, slot, user, ownID),
                creator: try await audiences.index(.request, slot, creator.callerSpace, ownID))
        }
        return TimerRecord(
            id: id, due: due, expires: slot.expiryMs, generation: slot.generation, answer: isQuestion ? Self.question : 0,
            sealed: sealed, names: names)
    }

    typealias Request = (timer: TimerRecord, content: RequestContent)

    /// Returns nil if the request is unknown, is over, or does not open.
    func request(_ id: RequestID) async throws -> Request? {
        try opened(try await store.read { try $0.timer(id) })
    }

    /// Returns the request of this name. The request may belong to another user.
    private func request(_ name: RequestName, by principal: Principal) async throws -> Request? {
        if let id = name.id, let found = try await request(id) { return found }
        guard let own = name.own else { return nil }
        // A back end finds what it has asked for, then what a user of its name may find.
        let namers: [(RequestNamer, name: [UInt8])] = [(.creator, principal.callerSpace), (.user, principal.user)]
        for (namer, name) in namers where principal.isBackEnd || namer == .user {
            let indexes = try await audiences.indexes(.request, .request, [name, own])
            let found = try await store.read { try $0.timer(named: indexes, by: namer) }
            if let request = try opened(found) { return request }
        }
        return nil
    }

    private func opened(_ found: TimerRecord?) throws -> Request? {
        guard let found, found.expires > time.now, let content = try RequestContent(found, keys) else { return nil }
        return (found, content)
    }

    /// Removes the notification of an approval or a question from the user's devices, except the one with this token.
    ///
    /// For the back end that asked, this withdraws a pending approval. For its user, it only clears the screen.
    /// - Returns: the number of pushes to devices. Nil if the request is unknown, or of another user and another back end.
    /// - Throws: `.tooManyPushes` if there is no room for all of them. Then none is sent.
    public func clearApproval(
        _ principal: Principal, request name: RequestName, excluding: DeviceName?, charging payer: RequestCharges?
    ) async throws -> Int? {
        guard let (timer, content) = try await request(name, by: principal) else { return nil }
        let hasAsked = content.isAsked(by: principal)
        guard hasAsked || content.user == principal.user else { return nil }
        if hasAsked, timer.answer != Self.question {
            guard timer.answer == 0 else { return 0 }
            try await audiences.chargeEvent(of: content.user)
            return try await withdraw(timer.id, excluding: excluding, charging: payer)
        }
        try await audiences.chargeEvent(of: content.user)
        return try await retrying { _ in
            let fanout = try await clearing(timer.id, of: content.user, excluding: excluding, because: .answered)
            if try await audiences.apply(fanout, charging: payer) == .done { return fanout.pushes }
            return nil
        }
    }

    /// Answers an approval, once. All other devices remove its notification, and the back end gets the answer.
    /// - Parameter excluding: the token of the device that answers.
    /// - Returns: false if the approval is unknown, another user's, answered, or timed out. The caller can't distinguish these.
    public func respond(
        _ principal: Principal, request name: RequestName, approved: Bool, excluding: DeviceName?,
        charging payer: RequestCharges?
    ) async throws -> Bool {
        return try await retrying { _ in
            guard let (timer, content) = try await request(name, by: principal), content.user == principal.user,
                timer.answer == 0, timer.due > time.now
            else { return false }
            let id = timer.id
            let end = try await end((timer, content), as: approved ? .approved : .denied, excluding: excluding)
            switch try await audiences.apply(end.fanout, charging: payer) {
            case .done:
                let message = CompanionMessage.approvalResponse(request: id, session: content.session, approved: approved)
                await tell(content, message)
                return true
            case .settled, .repeated: return false
            case .changed, .leftOut: return nil
            }
        }
    }

    /// Builds the end of a pending approval: devices clear it, and Live Activities show what is still pending, or else what was reported last.
    /// - Returns: also the number of pushes to devices.
    private func end(
        _ request: Request, as state: Approval.State, excluding: DeviceName? = nil
    ) async throws -> (fanout: Fanout, devices: Int) {
        let (timer, content) = request
        let current = try await audiences.session(content.user, content.session)
        let next = reported(in: current)
        var fanout = try await update(
            next.template, next.fields, elapsed: secondsOf(current), session: content.session, content.user, ended: timer)
        let cleared = try await clearing(timer.id, of: content.user, excluding: excluding, because: state.clearingReason)
        fanout.change.timer = .settle(
            id: timer.id, expires: timer.expires, answer: state.rawValue,
            listed: try await indexes(of: .pending, content.user, content.session))
        fanout += cleared
        return (fanout, cleared.pushes)
    }

    // MARK: Withdrawing

    /// Ends an approval that its back end no longer needs. Every device clears it. The user and the back end are informed.
    /// - Returns: the number of pushes to devices. 0 if the approval has ended meanwhile.
    private func withdraw(
        _ id: RequestID, excluding: DeviceName? = nil, charging payer: RequestCharges?
    ) async throws -> Int {
        return try await retrying { _ in
            guard let (timer, content) = try await request(id), timer.answer == 0, timer.due > time.now else { return 0 }
            let end = try await end((timer, content), as: .withdrawn, excluding: excluding)
            switch try await audiences.apply(end.fanout, charging: payer) {
            case .done:
                await tell(content, .approvalWithdrawn(request: id, session: content.session))
                return end.devices
            case .settled, .repeated: return 0
            case .changed, .leftOut: return nil
            }
        }
    }

    /// Withdraws the pending approvals that this back end has asked a user for in a session.
    func withdrawAll(
        of session: [UInt8], _ user: [UInt8], askedBy backEnd: Principal, charging payer: RequestCharges?
    ) async throws {
        let (indexes, now) = (try await indexes(of: .pending, user, session), time.now)
        for timer in try await store.read({ try $0.pendingTimers(listed: indexes, now: now) }) {
            guard try RequestContent(timer, keys)?.isAsked(by: backEnd) == true else { continue }
            _ = try await withdraw(timer.id, charging: payer)
        }
    }

    /// Returns the user whom this back end has asked for approvals in a session. Returns nil if there is none, or more than one.
    func onlyUser(of session: [UInt8], askedBy backEnd: Principal) async throws -> [UInt8]? {
        let indexes = try await indexes(of: .asked, backEnd.callerSpace, session)
        let found = try await store.read { try $0.timers(listed: indexes, limit: Self.maxAsked) }
        guard found.count < Self.maxAsked else { return nil }
        var users: Set<[UInt8]> = []
        for timer in found {
            if let content = try RequestContent(timer, keys), content.isAsked(by: backEnd) { users.insert(content.user) }
        }
        return users.count == 1 ? users.first : nil
    }

    /// Beyond so many approvals of one session in ten minutes, a back end has to name the user.
    private static let maxAsked = 1_000

    // MARK: Lists

    /// A list of a session's approvals.
    enum RequestList: UInt8 {
        /// A user's approvals that wait for an answer.
        case pending
        /// A back end's approvals, until they are forgotten.
        case asked
    }

    /// Returns the indexes under which a session's approvals may be listed.
    /// - Parameter name: the user, or who asked.
    func indexes(of list: RequestList, _ name: [UInt8], _ session: [UInt8]) async throws -> [Digest] {
        try await audiences.indexes(.request, .request, [name, session, [list.rawValue]])
    }

    /// Returns the change that stores an approval and lists it.
    func beginning(_ timer: TimerRecord, user: [UInt8], session: [UInt8], creator: Principal) async throws
        -> TimerChange
    {
        let slot = await audiences.expirySlot(for: .request)
        return .begin(
            timer,
            listed: [
                try await audiences.index(.request, slot, user, session, [RequestList.pending.rawValue]),
                try await audiences.index(.request, slot, creator.callerSpace, session, [RequestList.asked.rawValue]),
            ])
    }

    // MARK: States and timeouts

    /// Returns the state of an approval to its user and to the back end that asked. Returns nil for other callers, and after the approval's row
    /// has expired.
    public func approval(_ principal: Principal, request name: RequestName) async throws -> Approval? {
        guard let (timer, content) = try await request(name, by: principal),
            content.user == principal.user || content.isAsked(by: principal),
            let state = Approval.State(rawValue: timer.answer)
        else { return nil }
        // The timeout has passed, but its timer has not been handled yet.
        let isOver = state == .pending && timer.due <= time.now
        return Approval(state: isOver ? .timedOut : state, expires: timer.due, session: content.session)
    }

    /// Ends an approval that nobody has answered in time. Every device removes its notification, and the back end is informed.
    func timedOut(_ timer: TimerRecord) async throws {
        guard let content = try RequestContent(timer, keys) else {
            // The row was edited. Settle it without any message.
            var fanout = audiences.newFanout()
            fanout.change.timer = .settle(
                id: timer.id, expires: timer.expires, answer: Approval.State.timedOut.rawValue)
            _ = try await audiences.apply(fanout, charging: nil)
            return
        }
        let end = try await end((timer, content), as: .timedOut)
        guard try await audiences.apply(end.fanout, charging: nil) == .done else { return }
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
        /// Its back end no longer needs an answer.
        case withdrawn

        var clearingReason: ClearingReason {
            switch self {
            case .pending, .approved, .denied: .answered
            case .timedOut: .timedOut
            case .withdrawn: .withdrawn
            }
        }
    }

    public var state: State
    /// When it times out or timed out, unix ms.
    public var expires: UInt64
    /// The back end's own name for the session.
    public var session: [UInt8]
}
