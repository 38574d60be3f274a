internal import CNghttp2

/// One HTTP/2 connection without I/O: bytes in, events and bytes out. The owner does I/O and deadlines. A new session's first bytes are preface and
/// settings.
@safe public final class HTTP2Session {
    public enum Role: Sendable { case client, server }

    public let role: Role
    private let limits: HTTP2Limits
    private var session: OpaquePointer!
    /// nghttp2 hands this address to the callbacks. No callback runs inside another, and none calls this class.
    private let state: UnsafeMutablePointer<State>

    /// What the callbacks change.
    struct State {
        let role: Role
        let limits: HTTP2Limits
        var events: [HTTP2Event] = []
        /// Open streams and those that wait to be opened.
        var streams: [Int32: Stream] = [:]
        /// The header block being received. Blocks are never interleaved.
        var block = HTTP2Headers()
        var blockBytes = 0
        var wastedStreams = 0
        var controlFrames = 0
        var bytesSinceRequest = 0
        var hasRemoteSettings = false
        var isInHeaderBlock = false
    }

    struct Stream {
        var outgoing: [UInt8] = []
        var sent = 0
        var received = 0
        var tooLarge = false
        /// The peer's message is complete.
        var ended = false
        /// The last byte of our message was sent.
        var finished = false
        /// The peer's message is malformed.
        var malformed = false
        /// The request was never sent, so the peer can't have seen it.
        var unsent = false
        /// The body is shared with others, so it is no secret and is not wiped.
        var isShared = false
    }

    public init(_ role: Role, limits: HTTP2Limits) throws(HTTP2Error) {
        self.role = role
        self.limits = limits
        unsafe state = .allocate(capacity: 1)
        unsafe state.initialize(to: State(role: role, limits: limits))
        unsafe session = try makeSession(role, state)
        try unsafe submitPreface(session)
    }

    deinit {
        if unsafe session != nil { unsafe nghttp2_session_del(session) }
        unsafe state.deinitialize(count: 1)
        unsafe state.deallocate()
    }

    // MARK: Bytes and events

    /// Parses bytes from the peer. The events wait for `takeEvents`.
    public func receive(_ bytes: Span<UInt8>) throws(HTTP2Error) {
        if role == .server {
            unsafe state.pointee.bytesSinceRequest += bytes.count
            if unsafe state.pointee.bytesSinceRequest > limits.bytesBetweenRequests { terminate(.enhanceYourCalm) }
        }
        let result = unsafe bytes.withUnsafeBufferPointer { unsafe nghttp2_session_mem_recv(session, $0.baseAddress, $0.count) }
        if result < 0 { throw HTTP2Error(code: Int32(result)) }
    }

    /// Returns the events since the last call, in order.
    public func takeEvents() -> [HTTP2Event] {
        var taken: [HTTP2Event] = []
        // As many are likely to follow.
        unsafe taken.reserveCapacity(state.pointee.events.count)
        unsafe swap(&taken, &state.pointee.events)
        return taken
    }

    /// Appends output to `buffer` until it has `limit` bytes or nothing is left for now. The buffer may then hold secrets: wipe it and reserve its
    /// capacity if that matters.
    public func takeOutbound(into buffer: inout [UInt8], limit: Int = .max) throws(HTTP2Error) {
        while buffer.count < limit {
            var pointer: UnsafePointer<UInt8>?
            let count = unsafe nghttp2_session_mem_send(session, &pointer)
            guard count >= 0 else { throw HTTP2Error(code: Int32(count)) }
            guard count > 0, let pointer = unsafe pointer else { return }
            unsafe buffer.append(contentsOf: UnsafeBufferPointer(start: pointer, count: count))
            unsafe Self.wipe(pointer, count)
        }
    }

    /// The number of queued frames. A peer can cause more frames than it reads: stop reading from it while there are many.
    public var outboundFrames: Int { unsafe nghttp2_session_get_outbound_queue_size(session) }

    /// Whether output waits that the peer's windows allow.
    public var wantsWrite: Bool { unsafe nghttp2_session_want_write(session) != 0 }
    /// Nothing will be read or written any more: close the connection.
    public var isFinished: Bool {
        unsafe nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0
    }

    /// Whether the peer's settings have arrived.
    public var hasRemoteSettings: Bool { unsafe state.pointee.hasRemoteSettings }
    /// Whether a header block is incomplete. Until it ends, the peer can send nothing else.
    public var isInHeaderBlock: Bool { unsafe state.pointee.isInHeaderBlock }

    // MARK: Streams

    /// The number of open streams and of those that wait to be opened.
    public var openStreams: Int { unsafe state.pointee.streams.count }

    /// The peer's limit on concurrent streams; 1 before its settings have arrived.
    public var remoteConcurrentStreams: Int {
        guard unsafe state.pointee.hasRemoteSettings else { return 1 }
        return Int(unsafe nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))
    }

    /// Whether a request can still be sent: no GOAWAY, and stream ids are left.
    public var takesRequests: Bool {
        guard role == .client else { return false }
        return unsafe nghttp2_session_check_request_allowed(session) != 0
            && nghttp2_session_get_next_stream_id(session) < 1 << 31
    }

    /// Queues a request. Requests above `remoteConcurrentStreams` wait inside the session.
    /// - Returns: the stream's id.
    /// - Throws: `noMoreStreams` or `badMessage`.
    public func submitRequest(_ headers: HTTP2Headers, body: [UInt8]) throws(HTTP2Error) -> Int32 {
        precondition(role == .client, "a server sends no requests")
        guard takesRequests else { throw .noMoreStreams }
        var provider = unsafe State.bodyProvider()
        let id = unsafe headers.withNameValues { values in
            unsafe withUnsafePointer(to: &provider) { provider in
                unsafe nghttp2_submit_request(
                    session, nil, values.baseAddress, values.count, body.isEmpty ? nil : provider, nil)
            }
        }
        guard id > 0 else { throw HTTP2Error(code: id) }
        unsafe state.pointee.streams[id] = Stream(outgoing: body)
        return id
    }

    /// Queues the response of `stream`. Call it once per stream.
    /// - Parameter isShared: the body is shared with others, so it is not wiped.
    public func submitResponse(
        stream: Int32, _ headers: HTTP2Headers, body: [UInt8], isShared: Bool = false
    ) throws(HTTP2Error) {
        precondition(role == .server, "a client sends no responses")
        guard let index = unsafe state.pointee.streams.index(forKey: stream) else { throw .noSuchStream }
        unsafe state.pointee.streams.values[index].outgoing = body
        unsafe state.pointee.streams.values[index].isShared = isShared
        var provider = unsafe State.bodyProvider()
        let result = unsafe headers.withNameValues { values in
            unsafe withUnsafePointer(to: &provider) { provider in
                unsafe nghttp2_submit_response(
                    session, stream, values.baseAddress, values.count, body.isEmpty ? nil : provider)
            }
        }
        guard result == 0 else { throw HTTP2Error(code: result) }
    }

    /// Queues an interim response of `stream`, such as 100.
    public func submitInterimResponse(stream: Int32, status: String) throws(HTTP2Error) {
        guard unsafe state.pointee.streams[stream] != nil else { throw .noSuchStream }
        let headers: HTTP2Headers = [":status": status]
        let result = unsafe headers.withNameValues { values in
            unsafe nghttp2_submit_headers(
                session, UInt8(NGHTTP2_FLAG_NONE.rawValue), stream, nil, values.baseAddress, values.count, nil)
        }
        try check(result)
    }

    /// Whether the peer's message on a stream is complete. True for a closed stream.
    public func hasEnded(stream: Int32) -> Bool { unsafe state.pointee.streams[stream]?.ended ?? true }

    /// The bytes of our body on `stream` already taken for sending.
    public func sentBytes(stream: Int32) -> Int { unsafe state.pointee.streams[stream]?.sent ?? 0 }

    public func reset(stream: Int32, _ code: HTTP2ErrorCode) throws(HTTP2Error) {
        guard unsafe state.pointee.streams[stream] != nil else { throw .noSuchStream }
        try check(unsafe nghttp2_submit_rst_stream(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), stream, code.rawValue))
    }

    // MARK: The connection

    /// Announces new limits to the peer: open streams, and the initial window of a stream in bytes. Nil leaves a limit as it is.
    public func submitSettings(concurrentStreams: UInt32? = nil, streamWindow: UInt32? = nil) throws(HTTP2Error) {
        var entries: [nghttp2_settings_entry] = []
        for (id, value) in [
            (NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, concurrentStreams), (NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, streamWindow),
        ] {
            if let value { entries.append(nghttp2_settings_entry(settings_id: Int32(id.rawValue), value: value)) }
        }
        try submit(entries)
    }

    /// - Parameter payload: returned in `pingAcknowledged`.
    public func submitPing(_ payload: UInt64) throws(HTTP2Error) {
        var bytes = payload.bigEndian
        let result = unsafe withUnsafeBytes(of: &bytes) {
            unsafe nghttp2_submit_ping(
                session, UInt8(NGHTTP2_FLAG_NONE.rawValue), $0.baseAddress!.assumingMemoryBound(to: UInt8.self))
        }
        try check(result)
    }

    /// Refuses new streams. Streams up to `lastStream` (nil: the highest seen) are still served.
    public func submitGoAway(lastStream: Int32? = nil, _ code: HTTP2ErrorCode, debugData: [UInt8] = []) throws(HTTP2Error) {
        let last = unsafe lastStream ?? nghttp2_session_get_last_proc_stream_id(session)
        try check(
            unsafe nghttp2_submit_goaway(
                session, UInt8(NGHTTP2_FLAG_NONE.rawValue), last, code.rawValue, debugData, debugData.count))
    }

    /// Announces a shutdown: streams already on their way are still accepted. Follow it with `submitGoAway` a round trip later.
    public func submitShutdownNotice() throws(HTTP2Error) { try check(unsafe nghttp2_submit_shutdown_notice(session)) }

    /// Sends GOAWAY, then ends the session.
    public func terminate(_ code: HTTP2ErrorCode) { unsafe _ = nghttp2_session_terminate_session(session, code.rawValue) }

    // MARK: Making

    private func submitPreface(_ session: OpaquePointer) throws(HTTP2Error) {
        typealias Entry = nghttp2_settings_entry
        var settings = [
            Entry(settings_id: Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue), value: Self.streamWindow),
            Entry(settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue), value: UInt32(limits.headerListBytes)),
            Entry(settings_id: Int32(NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES.rawValue), value: 1),
        ]
        if limits.headerTableBytes != 4096 {
            settings.append(
                Entry(settings_id: Int32(NGHTTP2_SETTINGS_HEADER_TABLE_SIZE.rawValue), value: limits.headerTableBytes))
        }
        switch role {
        case .client: settings.append(Entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0))
        case .server:
            settings.append(
                Entry(settings_id: Int32(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS.rawValue), value: limits.concurrentStreams))
        }
        try submit(settings)
        try check(
            unsafe nghttp2_session_set_local_window_size(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), 0, Self.connectionWindow))
    }

    /// Data is consumed at once and limited by `limits.bodyBytes`, so the windows are simply large.
    private static let streamWindow: UInt32 = 1 << 18
    private static let connectionWindow: Int32 = 1 << 24

    private func submit(_ settings: [nghttp2_settings_entry]) throws(HTTP2Error) {
        try check(unsafe nghttp2_submit_settings(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), settings, settings.count))
    }

    private func check(_ result: Int32) throws(HTTP2Error) {
        if result != 0 { throw HTTP2Error(code: result) }
    }

    /// nghttp2 keeps a sent frame in its buffer until a longer one overwrites it. Wipes HEADERS, CONTINUATION and DATA. The client's preface is
    /// constant memory, and its fourth byte is no frame type.
    private static func wipe(_ pointer: UnsafePointer<UInt8>, _ count: Int) {
        guard count > 9, unsafe [0, 1, 9].contains(pointer[3]) else { return }
        unsafe explicit_bzero(UnsafeMutablePointer(mutating: pointer), count)
    }
}

/// Limits on what a peer can make a session store or do.
public struct HTTP2Limits: Sendable {
    /// One header block: names, values and 32 bytes per field (RFC 9113, 6.5.2).
    public var headerListBytes = 16 * 1024
    public var headerFields = 100
    /// The body of one message.
    public var bodyBytes: Int
    /// Streams that the peer may have open.
    public var concurrentStreams: UInt32
    /// Streams reset by either end before the response was complete, minus those that were answered.
    public var wastedStreams = 200
    /// Frames between two complete requests, except HEADERS and DATA with content.
    public var controlFrames = 10_000
    /// Bytes received between two complete requests. Bounds frames that are ignored (of unknown types, on closed streams). Must exceed the total size
    /// of all open streams' requests.
    public var bytesBetweenRequests = 8 << 20

    /// The size of HPACK's table for the peer's fields, which may be capabilities. With 0 no field of a request stays in memory.
    public var headerTableBytes: UInt32 = 4096

    public init(bodyBytes: Int, concurrentStreams: UInt32 = 128) {
        self.bodyBytes = bodyBytes
        self.concurrentStreams = concurrentStreams
    }
}

/// Events of a session, in order.
public enum HTTP2Event: Sendable, Equatable {
    public enum Part: Sendable { case headers, body }

    /// A request or a final response. Trailers and 1xx responses are dropped.
    case headers(stream: Int32, HTTP2Headers)
    case data(stream: Int32, HTTP2Data)
    /// The peer's message is complete.
    case end(stream: Int32)
    /// The peer's message exceeds the session's limits and the rest is dropped. A server answers 431 or 413.
    case tooLarge(stream: Int32, Part)
    /// The stream is closed, without further events. `refusedStream`: the peer has not processed the request, so it may be sent again.
    case closed(stream: Int32, HTTP2ErrorCode)
    /// The peer's settings have arrived and are in effect.
    case settings
    /// The peer accepts no more streams. Streams above `lastStream` follow as `closed` with `refusedStream`.
    case goAway(lastStream: Int32, HTTP2ErrorCode, debugData: [UInt8])
    case pingAcknowledged(UInt64)
}

/// Error codes of RFC 9113, 7.
public struct HTTP2ErrorCode: RawRepresentable, Sendable, Hashable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let noError = HTTP2ErrorCode(rawValue: 0)
    public static let protocolError = HTTP2ErrorCode(rawValue: 1)
    public static let internalError = HTTP2ErrorCode(rawValue: 2)
    public static let refusedStream = HTTP2ErrorCode(rawValue: 7)
    public static let cancel = HTTP2ErrorCode(rawValue: 8)
    public static let enhanceYourCalm = HTTP2ErrorCode(rawValue: 11)
}

/// Why a session failed. Output that is left (a GOAWAY) should still be sent.
public enum HTTP2Error: Error, Sendable, Equatable {
    /// The peer does not speak HTTP/2.
    case notHTTP2
    /// The peer makes work without reading the answers.
    case flooded
    /// The stream is unknown, or has ended.
    case noSuchStream
    /// The session accepts no more requests (GOAWAY, or stream ids are used up).
    case noMoreStreams
    /// A header block or setting that nghttp2 refuses.
    case badMessage
    case outOfMemory

    init(code: Int32) {
        switch nghttp2_error(rawValue: code) {
        case NGHTTP2_ERR_NOMEM: self = .outOfMemory
        case NGHTTP2_ERR_FLOODED: self = .flooded
        case NGHTTP2_ERR_BAD_CLIENT_MAGIC, NGHTTP2_ERR_PROTO: self = .notHTTP2
        case NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE, NGHTTP2_ERR_START_STREAM_NOT_ALLOWED: self = .noMoreStreams
        case NGHTTP2_ERR_STREAM_CLOSED, NGHTTP2_ERR_STREAM_CLOSING: self = .noSuchStream
        default: self = .badMessage
        }
    }
}
