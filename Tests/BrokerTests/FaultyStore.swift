import EventLoop
import Ledger
import Storage
import Synchronization
import Vocabulary

/// A real store behind a gate where a test lets calls fail, or kills the broker.
///
/// Calls pass in the order in which they come, those that read and those that write in turn and each kind together, so that one and the same
/// story goes the same way each time although the store has threads. All calls come from one loop.
final class FaultyStore: Store {
    enum Call: String, CaseIterable, Sendable {
        case room, joinable, token, jobs, nextExpiry, logHead, unpublished, latestWindow, mark, counts
        case registrations, registrationPlaces, holds, session, timer, due
        case register, unregister, setPreferences, apply
        case create, accept, replaceToken, withdrawToken, markProven, close, knock, finish, sweep, forgetAll
        case start, record, commit, published, setMark, closeLog, beginLog
        case scrub, closedEntries

        fileprivate enum Kind { case read, write, alone }
        fileprivate var kind: Kind {
            switch self {
            case .room, .joinable, .token, .jobs, .nextExpiry, .logHead, .unpublished, .latestWindow, .mark, .counts: .read
            case .registrations, .registrationPlaces, .holds, .session, .timer, .due: .read
            case .scrub, .closedEntries: .alone
            default: .write
            }
        }
        var writes: Bool { kind == .write }
    }

    enum Fault: Sendable, CaseIterable {
        case none
        /// Reported failed, and not done, or done all the same.
        case failed, doneAndFailed
        /// The broker is killed and hears no answer any more, before it is done or after.
        case killed, doneAndKilled
    }

    private struct State {
        var queue: [(call: Call, gate: CheckedContinuation<Bool, Never>)] = []
        /// Calls that were let through together and wait for each other.
        var passing = 0
        var done: [CheckedContinuation<Void, Never>] = []
        var isDead = false
        /// Calls that were not answered yet.
        var open = 0
        var whenIdle: [@Sendable () -> Void] = []
    }

    private let inner: SQLiteStore
    private let loop: EventLoop
    /// Asked at each call.
    private let fault: @Sendable (Call) -> Fault
    private let state = Mutex(State())

    init(_ inner: SQLiteStore, loop: EventLoop, fault: @escaping @Sendable (Call) -> Fault) {
        self.inner = inner
        self.loop = loop
        self.fault = fault
    }

    var isDead: Bool { state.withLock { $0.isDead } }
    var isIdle: Bool { state.withLock { $0.open == 0 } }

    /// Calls back when all calls are answered; at once if they are.
    func whenIdle(_ work: @escaping @Sendable () -> Void) {
        let isIdle = state.withLock { state in
            if state.open > 0 { state.whenIdle.append(work) }
            return state.open == 0
        }
        if isIdle { work() }
    }

    /// Nobody hears anything from this store any more.
    func kill() {
        let waiting = state.withLock { state in
            defer { state.queue = [] }
            state.isDead = true
            return state.queue
        }
        for call in waiting { call.gate.resume(returning: false) }
    }

    func shutDown() async { await inner.shutDown() }

    private func perform<Value>(
        _ call: Call, _ body: () async throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        state.withLock { $0.open += 1 }
        defer { leave() }
        let passes = await enter(call)
        guard passes else { throw .closed }
        let fault = fault(call)
        if fault == .killed { kill() }
        let result: Result<Value, StoreError>
        if isDead {
            result = .failure(.closed)
        } else if fault == .failed {
            result = .failure(.full)
        } else {
            do throws(StoreError) { result = .success(try await body()) } catch { result = .failure(error) }
        }
        if fault == .doneAndKilled { kill() }
        await meet()
        if isDead { throw .closed }
        if fault == .doneAndFailed { throw .full }
        return try result.get()
    }

    /// Waits until the calls before are answered.
    /// - Returns: false when the broker was killed meanwhile.
    private func enter(_ call: Call) async -> Bool {
        await withCheckedContinuation { gate in
            let (isDead, isFirst) = state.withLock { state in
                if state.isDead { return (true, false) }
                state.queue.append((call, gate))
                return (false, state.queue.count == 1 && state.passing == 0)
            }
            if isDead { gate.resume(returning: false) }
            if isFirst { loop.atEndOfTurn { self.letThrough() } }
        }
    }

    private func letThrough() {
        let calls = state.withLock { state in
            guard state.passing == 0, let kind = state.queue.first?.call.kind else { return state.queue.prefix(0) }
            let calls = kind == .alone ? state.queue.prefix(1) : state.queue.prefix { $0.call.kind == kind }
            state.queue.removeFirst(calls.count)
            state.passing = calls.count
            return calls
        }
        guard !calls.isEmpty else { return }
        // What came together is committed together.
        inner.hold()
        for call in calls { call.gate.resume(returning: true) }
        loop.atEndOfTurn { self.inner.release() }
    }

    /// Those that went through together are answered together, in their order.
    private func meet() async {
        await withCheckedContinuation { continuation in
            let all: [CheckedContinuation<Void, Never>] = state.withLock { state in
                state.passing -= 1
                state.done.append(continuation)
                guard state.passing == 0 else { return [] }
                defer { state.done = [] }
                return state.done
            }
            if all.isEmpty { return }
            for call in all { call.resume() }
            loop.atEndOfTurn { self.letThrough() }
        }
    }

    private func leave() {
        let idle = state.withLock { state -> [@Sendable () -> Void] in
            state.open -= 1
            guard state.open == 0 else { return [] }
            defer { state.whenIdle = [] }
            return state.whenIdle
        }
        for work in idle { work() }
    }
}

extension FaultyStore {
    func room(_ room: Digest) async throws(StoreError) -> RoomRecord? {
        try await perform(.room) { () throws(StoreError) in try await inner.room(room) }
    }
    func joinable(_ code: [Digest], now: UInt64) async throws(StoreError) -> JoinableRoom? {
        try await perform(.joinable) { () throws(StoreError) in try await inner.joinable(code, now: now) }
    }
    func token(_ purgeID: EntryID, expires: UInt64) async throws(StoreError) -> TokenRecord? {
        try await perform(.token) { () throws(StoreError) in try await inner.token(purgeID, expires: expires) }
    }
    func create(
        _ room: RoomRecord, code: PendingCode, otherIndexes: [Digest], token: NewToken?, shortLimit: Int, now: UInt64
    ) async throws(StoreError) -> CreateOutcome {
        try await perform(.create) { () throws(StoreError) in
            try await inner.create(room, code: code, otherIndexes: otherIndexes, token: token, shortLimit: shortLimit, now: now)
        }
    }
    func accept(
        _ code: PendingCode, joiner: SideRecord, token: NewToken?, used: UsedCode, now: UInt64
    ) async throws(StoreError) -> AcceptOutcome {
        try await perform(.accept) { () throws(StoreError) in
            try await inner.accept(code, joiner: joiner, token: token, used: used, now: now)
        }
    }
    func replaceToken(room: Digest, slot: UInt8, proven: Bool, token: NewToken) async throws(StoreError) -> Bool {
        try await perform(.replaceToken) { () throws(StoreError) in
            try await inner.replaceToken(room: room, slot: slot, proven: proven, token: token)
        }
    }
    func withdrawToken(room: Digest, slot: UInt8, proven: Bool) async throws(StoreError) -> Int? {
        try await perform(.withdrawToken) { () throws(StoreError) in
            try await inner.withdrawToken(room: room, slot: slot, proven: proven)
        }
    }
    func markProven(room: Digest, slot: UInt8) async throws(StoreError) -> Bool {
        try await perform(.markProven) { () throws(StoreError) in try await inner.markProven(room: room, slot: slot) }
    }
    func close(room: Digest) async throws(StoreError) -> Int? {
        try await perform(.close) { () throws(StoreError) in try await inner.close(room: room) }
    }
    func knock(_ job: NewJob, throttle: UInt64, now: UInt64, knocked: UInt64) async throws(StoreError) -> KnockOutcome {
        try await perform(.knock) { () throws(StoreError) in
            try await inner.knock(job, throttle: throttle, now: now, knocked: knocked)
        }
    }
    func finish(_ job: JobRecord, _ outcome: JobOutcome) async throws(StoreError) {
        try await perform(.finish) { () throws(StoreError) in try await inner.finish(job, outcome) }
    }
    func jobs() async throws(StoreError) -> [JobRecord] {
        try await perform(.jobs) { () throws(StoreError) in try await inner.jobs() }
    }
    func registrations(
        _ lookup: RegistrationLookup, _ indexes: [Digest]
    ) async throws(StoreError) -> [RegistrationRecord] {
        try await perform(.registrations) { () throws(StoreError) in try await inner.registrations(lookup, indexes) }
    }
    func registrationPlaces() async throws(StoreError) -> [RegistrationPlace] {
        try await perform(.registrationPlaces) { () throws(StoreError) in try await inner.registrationPlaces() }
    }
    func holds(_ row: RowName) async throws(StoreError) -> Bool {
        try await perform(.holds) { () throws(StoreError) in try await inner.holds(row) }
    }
    func register(
        _ registration: NewRegistration, replacing: [RegistrationRecord], devices: [Digest], owners: [Digest], limit: Int
    ) async throws(StoreError) -> RegisterOutcome {
        try await perform(.register) { () throws(StoreError) in
            try await inner.register(registration, replacing: replacing, devices: devices, owners: owners, limit: limit)
        }
    }
    func unregister(_ rows: [RowName], cause: PurgeCause) async throws(StoreError) -> Int {
        try await perform(.unregister) { () throws(StoreError) in try await inner.unregister(rows, cause: cause) }
    }
    func setPreferences(_ row: RowName, removing: UInt32, adding: UInt32) async throws(StoreError) -> Bool {
        try await perform(.setPreferences) { () throws(StoreError) in
            try await inner.setPreferences(row, removing: removing, adding: adding)
        }
    }
    func session(_ indexes: [Digest]) async throws(StoreError) -> SessionRecord? {
        try await perform(.session) { () throws(StoreError) in try await inner.session(indexes) }
    }
    func timer(_ id: RequestID) async throws(StoreError) -> TimerRecord? {
        try await perform(.timer) { () throws(StoreError) in try await inner.timer(id) }
    }
    func timer(named names: [Digest], by namer: RequestNamer) async throws(StoreError) -> TimerRecord? {
        try await perform(.timer) { () throws(StoreError) in try await inner.timer(named: names, by: namer) }
    }
    func due(now: UInt64, limit: Int) async throws(StoreError) -> DueWork {
        try await perform(.due) { () throws(StoreError) in try await inner.due(now: now, limit: limit) }
    }
    func apply(_ change: AudienceChange, now: UInt64) async throws(StoreError) -> ChangeOutcome {
        try await perform(.apply) { () throws(StoreError) in try await inner.apply(change, now: now) }
    }
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult {
        try await perform(.sweep) { () throws(StoreError) in try await inner.sweep(now: now, limit: limit, jobSlack: jobSlack) }
    }
    func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64? {
        try await perform(.nextExpiry) { () throws(StoreError) in try await inner.nextExpiry(jobSlack: jobSlack) }
    }
    func forgetAll(limit: Int) async throws(StoreError) -> SweepResult {
        try await perform(.forgetAll) { () throws(StoreError) in try await inner.forgetAll(limit: limit) }
    }

    func scrub() async throws(StoreError) -> Bool {
        try await perform(.scrub) { () throws(StoreError) in try await inner.scrub() }
    }
    func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await perform(.start) { () throws(StoreError) in try await inner.start(events, marks: marks) }
    }
    func record(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await perform(.record) { () throws(StoreError) in try await inner.record(events, marks: marks) }
    }
    func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry] {
        try await perform(.closedEntries) { () throws(StoreError) in
            try await inner.closedEntries(before: window, limit: limit)
        }
    }
    func logHead() async throws(StoreError) -> LogHead? {
        try await perform(.logHead) { () throws(StoreError) in try await inner.logHead() }
    }
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool {
        try await perform(.commit) { () throws(StoreError) in try await inner.commit(head, after: size, entries: entries) }
    }
    func unpublished() async throws(StoreError) -> (first: UInt64, entries: [[UInt8]]) {
        try await perform(.unpublished) { () throws(StoreError) in try await inner.unpublished() }
    }
    func published(upTo size: UInt64) async throws(StoreError) {
        try await perform(.published) { () throws(StoreError) in try await inner.published(upTo: size) }
    }
    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool {
        try await perform(.closeLog) { () throws(StoreError) in try await inner.closeLog(events, next: next, mark: mark) }
    }
    func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool {
        try await perform(.beginLog) { () throws(StoreError) in try await inner.beginLog(after: end, marks: marks) }
    }
    func latestWindow() async throws(StoreError) -> UInt64 {
        try await perform(.latestWindow) { () throws(StoreError) in try await inner.latestWindow() }
    }
    func mark(_ name: String) async throws(StoreError) -> [UInt8]? {
        try await perform(.mark) { () throws(StoreError) in try await inner.mark(name) }
    }
    func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError) {
        try await perform(.setMark) { () throws(StoreError) in try await inner.setMark(name, value) }
    }
    func counts() async throws(StoreError) -> StoreCounts {
        try await perform(.counts) { () throws(StoreError) in try await inner.counts() }
    }
}
