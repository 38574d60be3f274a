internal import CPostgres
import Linux

/// A connection to PostgreSQL in pipeline mode. Not `Sendable`: it belongs to one thread.
///
/// `send` only queues a statement. `receive` sends what is queued, waits for the answers and returns them. After an error the server skips the
/// statements that were sent with the failed one. An open transaction can only be rolled back then.
@safe public final class PostgresConnection {
    private let functions: mayfly_pq
    private let handle: OpaquePointer
    /// A literal's address, and the number of rows that it must change.
    private struct Key: Hashable {
        let literal: UInt
        let count: Int?
    }
    private var prepared: [Key: String] = [:]
    /// The statements that were prepared since the last answers.
    private var fresh: [Key] = []
    private var preparations = 0
    /// The queued statements. True for a preparation, whose result nobody reads.
    private var queued: [Bool] = []
    /// False after a failure of the connection itself. Then only a new one helps.
    public private(set) var isUsable = true

    /// Connects. The URI's options override `options`; libpq's environment and files fill in the rest.
    /// - Parameters:
    ///   - uri: `postgresql://...`, also with several hosts.
    ///   - options: further options of libpq by name (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS).
    ///   - host: the only one to try. Nil for libpq's choice.
    ///   - deadlineMs: the longest wait for all hosts together. The system resolves names in its own time.
    public init(
        _ uri: String, options: [(String, String)] = [], host: Host? = nil, deadlineMs: UInt64
    ) throws(PostgresError) {
        let functions = try Library.load()
        self.functions = functions
        try Self.check(uri)
        // The last option of a name wins.
        let options = options + [("dbname", uri)] + (host?.options ?? [])
        let opened = unsafe Self.withStrings(options.map(\.0)) { names in
            unsafe Self.withStrings(options.map(\.1)) { values in unsafe functions.PQconnectStartParams(names, values, 1) }
        }
        guard let handle = unsafe opened else { throw .refused("out of memory") }
        unsafe self.handle = unsafe handle
        try connect(deadline: Clock.monotonicMs + deadlineMs)
        _ = unsafe functions.PQsetNoticeReceiver(handle, mayfly_pq_drop_notice, nil)
        guard unsafe functions.PQsetnonblocking(handle, 1) == 0, unsafe functions.PQenterPipelineMode(handle) == 1 else {
            throw .refused("no pipeline mode")
        }
    }

    deinit { unsafe functions.PQfinish(handle) }

    /// - Throws: `.address` if libpq can't parse the URI.
    public static func check(_ uri: String) throws(PostgresError) {
        _ = try options([], of: uri) { _ in nil }
    }

    /// One of several hosts that a URI names.
    ///
    /// libpq itself goes on to the next host after an error only. A machine without power gives none, so callers try each host for a while.
    public struct Host: Sendable {
        fileprivate let options: [(String, String)]
    }

    /// Returns the hosts of a URI, in its order. Returns none if it names none.
    public static func hosts(of uri: String) throws(PostgresError) -> [Host] {
        let lists = try options(["host", "hostaddr", "port"], of: uri) { _ in nil }.mapValues { value in
            value.split(separator: ",", omittingEmptySubsequences: false).map { String($0) }
        }
        let count = max(lists["host"]?.count ?? 0, lists["hostaddr"]?.count ?? 0)
        return (0..<count).map { index in
            // One port is for all hosts.
            Host(options: lists.map { ($0.key, $0.value.count > index ? $0.value[index] : $0.value[0]) })
        }
    }

    /// Returns options of a URI by name. Those that nothing sets are left out.
    /// - Parameter environment: returns a variable's value, which counts if the URI doesn't set the option.
    public static func options(
        _ names: Set<String>, of uri: String, environment: (String) -> String?
    ) throws(PostgresError) -> [String: String] {
        let functions = try Library.load()
        let parsed = unsafe functions.PQconninfoParse(uri, nil)
        guard var option = unsafe parsed else { throw .address }
        defer { unsafe functions.PQconninfoFree(parsed) }
        var found: [String: String] = [:]
        while let keyword = unsafe option.pointee.keyword {
            let name = unsafe String(cString: keyword)
            if names.contains(name) {
                if let value = unsafe option.pointee.val {
                    found[name] = unsafe String(cString: value)
                } else if let variable = unsafe option.pointee.envvar {
                    found[name] = unsafe environment(String(cString: variable))
                }
            }
            unsafe option += 1
        }
        return found
    }

    /// The server's version, e.g. 150018 for 15.18.
    public var serverVersion: Int { unsafe Int(functions.PQserverVersion(handle)) }

    /// Returns true if the server has ended the session since the last answer, e.g. because it stopped.
    public func hasEnded() -> Bool {
        while isUsable, unsafe Poll.isReady(functions.PQsocket(handle), .read) {
            isUsable = unsafe functions.PQconsumeInput(handle) == 1
        }
        return !isUsable
    }

    // MARK: Statements

    /// Queues a literal. It is prepared at its first use.
    /// - Parameter count: for an UPDATE or DELETE without RETURNING: the server refuses with `isWrongCount` unless it changes as many rows. So
    ///   a COMMIT in the same pipeline is skipped.
    public func send(
        _ sql: StaticString, _ parameters: Parameters = Parameters(), expecting count: Int? = nil
    ) throws(PostgresError) {
        let key = Key(literal: unsafe UInt(bitPattern: sql.utf8Start), count: count)
        if let name = prepared[key] { return try send(prepared: name, parameters) }
        let name = "s\(preparations)"
        preparations += 1
        let text =
            count.map { "WITH changed AS (\(sql) RETURNING 1) SELECT 1 / (count(*) = \($0))::int FROM changed" }
            ?? sql.description
        try check(unsafe functions.PQsendPrepare(handle, name, text, 0, nil))
        queued.append(true)
        prepared[key] = name
        fresh.append(key)
        try send(prepared: name, parameters)
    }

    /// Queues a statement that is used once.
    public func send(text sql: String, _ parameters: Parameters = Parameters()) throws(PostgresError) {
        try unsafe send(parameters) { count, values, lengths, formats in
            unsafe functions.PQsendQueryParams(handle, sql, count, nil, values, lengths, formats, 1)
        }
    }

    private func send(prepared name: String, _ parameters: Parameters) throws(PostgresError) {
        try unsafe send(parameters) { count, values, lengths, formats in
            unsafe functions.PQsendQueryPrepared(handle, name, count, values, lengths, formats, 1)
        }
    }

    private typealias Send = (
        Int32, UnsafePointer<UnsafePointer<CChar>?>, UnsafePointer<Int32>, UnsafePointer<Int32>
    ) -> Int32

    private func send(_ parameters: Parameters, _ body: Send) throws(PostgresError) {
        let sent = unsafe parameters.bytes.withUnsafeBytes { bytes in
            var values: [UnsafePointer<CChar>?] = unsafe []
            var lengths: [Int32] = []
            // An empty value needs an address too: without one it would be null.
            let start = unsafe bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
            unsafe withUnsafePointer(to: CChar(0)) { none in
                parameters.eachRange { range in
                    if let range {
                        unsafe values.append(unsafe start.map { unsafe UnsafePointer($0 + range.lowerBound) } ?? none)
                    } else {
                        unsafe values.append(nil)
                    }
                    lengths.append(Int32(range?.count ?? 0))
                }
            }
            let formats = [Int32](repeating: 1, count: parameters.count)
            return unsafe body(Int32(parameters.count), values, lengths, formats)
        }
        try check(sent)
        queued.append(false)
    }

    private func check(_ sent: Int32) throws(PostgresError) {
        guard sent == 1, isUsable else { throw lost() }
    }

    // MARK: Answers

    /// Sends all queued statements and waits for their results.
    /// - Throws: `.statement` for the first that was refused; `.lost` if the connection broke; `.silent` if `deadlineMs` passed.
    public func receive(deadlineMs: UInt64) throws(PostgresError) -> [QueryResult] {
        let expected = queued
        queued = []
        guard isUsable, unsafe functions.PQpipelineSync(handle) == 1 else { throw lost() }
        let deadline = Clock.monotonicMs + deadlineMs
        try flush(deadline)
        var results: [QueryResult] = []
        results.reserveCapacity(expected.count)
        var failure: PostgresError?
        for isPreparation in expected {
            while let result = try unsafe next(deadline) {
                switch unsafe functions.PQresultStatus(result) {
                case PGRES_COMMAND_OK, PGRES_TUPLES_OK:
                    if isPreparation {
                        unsafe functions.PQclear(result)
                    } else {
                        unsafe results.append(QueryResult(functions, result))
                    }
                default:
                    // Those after the failed one are reported as aborted.
                    if failure == nil { failure = unsafe .statement(state(of: result)) }
                    unsafe functions.PQclear(result)
                }
            }
        }
        guard let end = try unsafe next(deadline) else { throw lost() }
        defer { unsafe functions.PQclear(end) }
        guard unsafe functions.PQresultStatus(end) == PGRES_PIPELINE_SYNC else { throw lost() }
        if let failure {
            // The server may have skipped their preparation.
            for key in fresh { prepared[key] = nil }
            fresh = []
            throw failure
        }
        fresh = []
        return results
    }

    private func state(of result: OpaquePointer) -> String {
        let sqlState = Int32(UInt8(ascii: "C"))
        guard let text = unsafe functions.PQresultErrorField(result, sqlState) else { return "none" }
        return unsafe String(cString: text)
    }

    /// Returns the next result, or nil at the end of a statement's results.
    private func next(_ deadline: UInt64) throws(PostgresError) -> OpaquePointer? {
        while unsafe functions.PQisBusy(handle) != 0 {
            try wait(for: .read, deadline)
            guard unsafe functions.PQconsumeInput(handle) == 1 else { throw lost() }
        }
        return unsafe functions.PQgetResult(handle)
    }

    private func flush(_ deadline: UInt64) throws(PostgresError) {
        while true {
            switch unsafe functions.PQflush(handle) {
            case 0: return
            case 1:
                // The server may be waiting until its answers are read.
                try wait(for: [.read, .write], deadline)
                guard unsafe functions.PQconsumeInput(handle) == 1 else { throw lost() }
            default: throw lost()
            }
        }
    }

    // MARK: Notifications

    /// Returns the payloads of NOTIFY that have arrived on the channels of this session's LISTEN. Waits until there is one, or `deadlineMs` passed.
    /// Source: https://www.postgresql.org/docs/current/libpq-notify.html
    /// - Throws: `.lost` if the connection broke.
    public func notifications(deadlineMs: UInt64) throws(PostgresError) -> [String] {
        let deadline = Clock.monotonicMs + deadlineMs
        while true {
            let payloads = takeNotifications()
            guard payloads.isEmpty, unsafe Poll.wait(functions.PQsocket(handle), .read, until: deadline) else { return payloads }
            guard unsafe functions.PQconsumeInput(handle) == 1 else { throw lost() }
        }
    }

    private func takeNotifications() -> [String] {
        var payloads: [String] = []
        while let notification = unsafe functions.PQnotifies(handle) {
            unsafe payloads.append(String(cString: notification.pointee.extra))
            unsafe functions.PQfreemem(notification)
        }
        return payloads
    }

    // MARK: Waiting

    private func connect(deadline: UInt64) throws(PostgresError) {
        var state = PGRES_POLLING_WRITING
        while true {
            guard unsafe functions.PQstatus(handle) != CONNECTION_BAD, state != PGRES_POLLING_FAILED else { break }
            if state == PGRES_POLLING_OK { return }
            let event: Events = state == PGRES_POLLING_READING ? .read : .write
            guard unsafe Poll.wait(functions.PQsocket(handle), event, until: deadline) else {
                throw .refused("no answer in time")
            }
            unsafe state = functions.PQconnectPoll(handle)
        }
        throw .refused(Self.withoutAddress(message()))
    }

    /// Hides a text about the address itself. It contains part of a password that has an unescaped `@`, `/` or `:`.
    private static func withoutAddress(_ text: String) -> String {
        if text.hasPrefix("connection to server") { return text }
        return text.hasPrefix("could not translate host name")
            ? "the system can't resolve the host's name" : "libpq refuses an option of the address, such as the port"
    }

    private func wait(for events: Events, _ deadline: UInt64) throws(PostgresError) {
        guard unsafe Poll.wait(functions.PQsocket(handle), events, until: deadline) else {
            isUsable = false
            throw .silent
        }
    }

    private func lost() -> PostgresError {
        isUsable = false
        return .lost(message())
    }

    /// libpq's text about the connection, in one line.
    private func message() -> String {
        guard let text = unsafe functions.PQerrorMessage(handle) else { return "unknown error" }
        let lines = unsafe String(cString: text).split(separator: "\n").map { line in line.drop { $0 == "\t" || $0 == " " } }
        return lines.isEmpty ? "the server closed it" : lines.joined(separator: "; ")
    }

    private static func withStrings<Value>(
        _ strings: [String], _ body: (UnsafePointer<UnsafePointer<CChar>?>) -> Value
    ) -> Value {
        let copies = unsafe strings.map { string in
            let bytes = Array(string.utf8CString)
            let copy = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count)
            unsafe copy.initialize(from: bytes, count: bytes.count)
            return unsafe copy
        }
        defer {
            for index in unsafe copies.indices { unsafe copies[index].deallocate() }
        }
        let pointers: [UnsafePointer<CChar>?] = unsafe copies.map { unsafe UnsafePointer($0) } + [nil]
        return unsafe body(pointers)
    }
}
