public import Ledger
public import Policy
import SQLite
public import Vocabulary

/// The embedded store: one SQLite file in WAL mode, one thread that writes, one that reads, one for what takes long.
public final class SQLiteStore: Store {
    let writer: StoreThread
    private let reader: StoreThread
    /// For what takes long: nobody who asks for a room waits behind it.
    private let background: StoreThread
    private let journal: Journal

    /// Opens or makes the database.
    /// - Parameters:
    ///   - resolution: length of a ledger window in seconds.
    ///   - timing: of the rooms policy. The state folder keeps its first one. Nil for the one that it has.
    ///   - waitingLimit: how many ledger entries may wait to be published before operations are refused.
    ///   - resumption: what the log is told after the broker was away for a minute or more without having stopped.
    ///   - now: broker time in unix milliseconds; gives entries their window.
    /// - Throws: `otherTiming` if the state folder began with another timing.
    public init(
        path: String, resolution: UInt64, timing: LedgerTiming?, waitingLimit: Int = 1_000_000, resumption: [Entry.Op] = [],
        now: @escaping @Sendable () -> UInt64
    ) throws(StoreError) {
        let journal = Journal(resolution: resolution, timing: timing ?? .standard, limit: waitingLimit, now: now)
        self.journal = journal
        let background = try StoreThread(name: "store-background", writes: false) {
            let tables = try Tables(path: path, access: .readWrite, journal: journal)
            // It reads much, and nothing twice.
            try tables.database.execute("PRAGMA cache_size = -1024")
            return tables
        }
        self.background = background
        writer = try StoreThread(name: "store-writer", writes: true) {
            let tables = try Tables(path: path, access: .readWrite, journal: journal, resumption: resumption)
            tables.database.takeOverCheckpoints()
            try tables.adopt(timing)
            try tables.resumeJournal()
            return tables
        } committed: { tables, writer in
            Self.checkpoint(tables, writer, background)
        }
        reader = try StoreThread(name: "store-reader", writes: false) {
            try Tables(path: path, access: .readOnly, journal: journal)
        }
    }

    public func hold() {
        reader.hold()
        writer.hold()
    }

    public func release() {
        reader.release()
        writer.release()
    }

    func perform<Value: Sendable>(
        on thread: StoreThread, _ turn: StoreThread.Turn = .shared, isSignOfLife: Bool = true,
        _ body: @escaping @Sendable (Tables) throws -> Value
    ) async throws(StoreError) -> Value {
        let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            let slot = ResultSlot<Value>()
            thread.submit(
                StoreThread.Job(
                    run: { tables in slot.set(try body(tables)) },
                    finish: { error in
                        if let error {
                            continuation.resume(returning: .failure(error))
                        } else {
                            continuation.resume(returning: .success(slot.take()))
                        }
                    },
                    turn: turn, isSignOfLife: isSignOfLife))
        }
        return try result.get()
    }

    private func read<Value: Sendable>(
        _ body: @escaping @Sendable (Tables) throws -> Value
    ) async throws(StoreError) -> Value {
        try await perform(on: reader, .shared, body)
    }

    private func write<Value: Sendable>(
        _ body: @escaping @Sendable (Tables) throws -> Value
    ) async throws(StoreError) -> Value {
        try await perform(on: writer, .shared, body)
    }

    // MARK: Rooms

    public func room(_ room: Digest) async throws(StoreError) -> RoomRecord? { try await read { try $0.room(room) } }

    public func joinable(_ code: [Digest], now: UInt64) async throws(StoreError) -> JoinableRoom? {
        try await read { try $0.joinable(code, now: now) }
    }

    public func token(_ purgeID: EntryID, expires: UInt64) async throws(StoreError) -> TokenRecord? {
        try await read { try $0.token(purgeID, expires: expires) }
    }

    public func create(
        _ room: RoomRecord, code: PendingCode, otherIndexes: [Digest], token: NewToken?, shortLimit: Int, now: UInt64
    ) async throws(StoreError) -> CreateOutcome {
        try await write {
            try $0.create(room, code: code, otherIndexes: otherIndexes, token: token, shortLimit: shortLimit, now: now)
        }
    }

    public func accept(
        _ code: PendingCode, joiner: SideRecord, token: NewToken?, used: UsedCode, now: UInt64
    ) async throws(StoreError) -> AcceptOutcome {
        try await write { try $0.accept(code, joiner: joiner, token: token, used: used, now: now) }
    }

    public func replaceToken(room: Digest, slot: UInt8, proven: Bool, token: NewToken) async throws(StoreError) -> Bool {
        try await write { try $0.replaceToken(room: room, slot: slot, proven: proven, token: token) }
    }

    public func withdrawToken(room: Digest, slot: UInt8, proven: Bool) async throws(StoreError) -> Int? {
        try await write { try $0.withdrawToken(room: room, slot: slot, proven: proven) }
    }

    public func markProven(room: Digest, slot: UInt8) async throws(StoreError) -> Bool {
        try await write { try $0.markProven(room: room, slot: slot) }
    }

    public func close(room: Digest) async throws(StoreError) -> Int? { try await write { try $0.close(room: room) } }

    // MARK: Pushes

    public func knock(
        _ job: NewJob, throttle: UInt64, now: UInt64, knocked: UInt64
    ) async throws(StoreError) -> KnockOutcome {
        try await write { try $0.knock(job, throttle: throttle, now: now, knocked: knocked) }
    }

    public func finish(_ job: JobRecord, _ outcome: JobOutcome) async throws(StoreError) {
        try await write { try $0.finish(job, outcome) }
    }

    public func jobs() async throws(StoreError) -> [JobRecord] { try await read { try $0.jobs() } }

    // MARK: Audiences

    public func registrations(
        _ lookup: RegistrationLookup, _ indexes: [Digest]
    ) async throws(StoreError) -> [RegistrationRecord] {
        try await read { try $0.registrations(lookup, indexes) }
    }

    public func registrationPlaces() async throws(StoreError) -> [RegistrationPlace] {
        try await perform(on: background) { try $0.registrationPlaces() }
    }

    public func holds(_ row: RowName) async throws(StoreError) -> Bool { try await read { try $0.holds(row) } }

    public func register(
        _ registration: NewRegistration, replacing: [RegistrationRecord], devices: [Digest], owners: [Digest], limit: Int
    ) async throws(StoreError) -> RegisterOutcome {
        try await write {
            try $0.register(registration, replacing: replacing, devices: devices, owners: owners, limit: limit)
        }
    }

    public func unregister(_ rows: [RowName], cause: PurgeCause) async throws(StoreError) -> Int {
        try await write { try $0.unregister(rows, cause: cause) }
    }

    public func setPreferences(_ row: RowName, removing: UInt32, adding: UInt32) async throws(StoreError) -> Bool {
        try await write { try $0.setPreferences(row, removing: removing, adding: adding) }
    }

    public func session(_ indexes: [Digest]) async throws(StoreError) -> SessionRecord? {
        try await read { try $0.session(indexes) }
    }

    public func timer(_ id: RequestID) async throws(StoreError) -> TimerRecord? { try await read { try $0.timer(id) } }
    public func timer(named names: [Digest], by namer: RequestNamer) async throws(StoreError) -> TimerRecord? {
        try await read { try $0.timer(named: names, by: namer) }
    }

    public func due(now: UInt64, limit: Int) async throws(StoreError) -> DueWork {
        try await read { try $0.due(now: now, limit: limit) }
    }

    public func apply(_ change: AudienceChange, now: UInt64) async throws(StoreError) -> ChangeOutcome {
        try await write { try $0.apply(change, now: now) }
    }

    // MARK: Forgetting

    public func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult {
        try await perform(on: writer, .apart) { try $0.sweep(now: now, limit: limit, jobSlack: jobSlack) }
    }

    public func forgetAll(limit: Int) async throws(StoreError) -> SweepResult {
        try await perform(on: writer, .apart) { try $0.forgetAll(limit: limit) }
    }

    public func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64? {
        try await read { try $0.nextExpiry(jobSlack: jobSlack) }
    }

    /// Long enough for our own readers, which come and go; too short to hold up writers for those of someone else.
    private static let scrubWaitMs: Int32 = 50

    public func scrub() async throws(StoreError) -> Bool {
        // Most of it while others write.
        try await perform(on: background) { try $0.database.checkpoint() }
        return try await perform(on: writer, .alone) { try $0.database.checkpointTruncating(waitMs: Self.scrubWaitMs) }
    }

    /// The write-ahead log's length at which it is copied into the database, and the one at which writers have to wait for that. In frames of
    /// 4 KiB.
    static let checkpointFrames = 4_000
    private static let mostFrames = 16_000

    /// Has the write-ahead log copied into the database while others write; then the writer does the rest, which is little, so that the log
    /// can begin anew.
    private static func checkpoint(_ tables: Tables, _ writer: StoreThread, _ background: StoreThread) {
        let frames = tables.database.framesInLog
        if frames < checkpointFrames { tables.checkpointAt = checkpointFrames }
        if frames >= max(mostFrames, tables.checkpointAt) {
            try? tables.database.checkpoint()
            tables.checkpointAt = frames + checkpointFrames
        }
        guard frames >= tables.checkpointAt, !tables.isCheckpointing else { return }
        tables.isCheckpointing = true
        let rest = StoreThread.Job(
            run: { tables in
                tables.isCheckpointing = false
                // Readers may have stood in the way: not again at every commit.
                tables.checkpointAt = tables.database.framesInLog + checkpointFrames / 4
                try tables.database.checkpoint()
            }, finish: { _ in }, turn: .alone)
        background.submit(
            StoreThread.Job(run: { try $0.database.checkpoint() }, finish: { _ in writer.submit(rest) }))
    }

    // MARK: Ledger

    public func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await write { try $0.record(events, marks) }
        journal.noteStart()
    }

    public func record(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await write { try $0.record(events, marks) }
        for case .brokerStopped in events { journal.noteEnd() }
    }

    public func latestWindow() async throws(StoreError) -> UInt64 { try await read { try $0.latestWindow() } }

    public func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry] {
        // On the writer, so that no entry of a closed window can come after it. Nor may one come between those of an open window.
        // It succeeds on a full disk too.
        let early = try await perform(on: writer, .apart, isSignOfLife: false) { tables in
            tables.journal.give(before: window) ? try tables.closedEntries(before: window, limit: limit) : nil
        }
        if let early { return early }
        return try await perform(on: background) { try $0.closedEntries(before: window, limit: limit) }
    }

    public func logHead() async throws(StoreError) -> LogHead? { try await read { try $0.logHead() } }

    public func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool {
        try await perform(on: writer, .apart) { try $0.commit(head, after: size, entries: entries) }
    }

    public func unpublished() async throws(StoreError) -> (first: UInt64, entries: [[UInt8]]) {
        try await perform(on: background) { try $0.unpublished() }
    }

    public func published(upTo size: UInt64) async throws(StoreError) {
        try await perform(on: writer, .apart) { try $0.published(upTo: size) }
    }

    public func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool {
        let isClosed = try await write { try $0.closeLog(events, next: next, mark: mark) }
        if isClosed { journal.noteEnd() }
        return isClosed
    }

    public func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool {
        try await write { try $0.beginLog(after: end, marks: marks) }
    }

    // MARK: Marks, counts, end

    public func mark(_ name: String) async throws(StoreError) -> [UInt8]? { try await read { try $0.mark(name) } }

    public func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError) {
        try await write { try $0.setMark(name, value) }
    }

    public func counts() async throws(StoreError) -> StoreCounts {
        try await perform(on: background) { try $0.counts() }
    }

    /// Finishes what was queued, empties the write-ahead log and closes the file.
    public func shutDown() async {
        reader.close()
        _ = try? await scrub()
        background.close()
        writer.close()
    }
}
