import CWslay
import Glibc
import Linux

/// One WebSocket after its handshake (RFC 6455) on top of wslay, without I/O: bytes in, messages and bytes out. Text messages only. Not `Sendable`.
///
/// wslay checks framing, masking, UTF-8 and close codes, and answers pings and close frames. This class adds limits. Once `isFinished`, write the
/// output of `takeOutput` and close the connection.
///
/// wslay holds two buffers of 4 KiB. Between frames they and the rest of its state are empty, so an idle machine frees its wslay context. The next
/// bytes create a new one.
@safe public final class WebSocketMachine {
    public enum Role: Sendable { case server, client }

    /// The limit on pings, pongs and empty fragments in one `controlWindowMs`. One more closes with 1008. Answers to numbered pings don't count:
    /// otherwise the other side of a room could have this socket closed by arriving often.
    public static let controlFrameLimit = 100
    public static let controlWindowMs: UInt64 = 10_000

    private let role: Role
    /// The longest message in bytes, over all its fragments. A longer one closes with 1009.
    public private(set) var maximumBytes: Int
    private var context: wslay_event_context_ptr?
    /// Bytes passed to the context, and the total length of the frames that it has begun. If equal, the context is between two frames.
    private var givenBytes: UInt64 = 0
    private var framedBytes: UInt64 = 0
    private var input = unsafe UnsafeRawBufferPointer(start: nil, count: 0)
    private var inputOffset = 0
    /// The part of wslay's read buffer with bytes that were already parsed.
    private var staleBytes = 0
    private var output: [UInt8] = []
    private var partial: TextMessage?
    private var messages: [TextMessage] = []
    private var nowMs: UInt64 = 0
    private var windowStartMs: UInt64 = 0
    private var controlFrames = 0
    private var isBroken = false
    /// The current frame belongs to a message. Control frames may come between its fragments.
    private var isInText = false
    /// Our close frame is queued or sent. No more messages are delivered.
    public private(set) var isClosing = false
    /// The number of the peer's pongs.
    public private(set) var pongCount = 0
    /// The highest number of a ping, and the highest that the peer returned.
    private var pingNumber: UInt64 = 0
    public private(set) var answeredPing: UInt64 = 0

    public init(role: Role, maximumBytes: Int = 16384) {
        unsafe context = nil
        self.role = role
        self.maximumBytes = maximumBytes
    }

    deinit { if unsafe context != nil { unsafe wslay_event_context_free(context) } }

    /// Whether there is no wslay context.
    var isIdle: Bool { unsafe context == nil }

    /// Returns the context. Creates it after a rest.
    @unsafe private func activeContext() -> wslay_event_context_ptr {
        if let context = unsafe context { return unsafe context }
        var callbacks = Callbacks.table
        let start = unsafe role == .server ? wslay_event_context_server_init : wslay_event_context_client_init
        let result = unsafe start(&context, &callbacks, Unmanaged.passUnretained(self).toOpaque())
        precondition(result == 0, "out of memory")
        unsafe wslay_event_config_set_no_buffering(context, 1)
        givenBytes = 0
        framedBytes = 0
        return unsafe context!
    }

    /// Frees the context if it is between two frames, outside a message, with nothing to send.
    private func releaseIdleContext() {
        guard unsafe context != nil, !isClosing, !isBroken, partial == nil, givenBytes == framedBytes,
            unsafe wslay_event_want_write(context) == 0, unsafe wslay_event_want_read(context) != 0,
            unsafe wslay_event_get_close_received(context) == 0
        else { return }
        unsafe wslay_event_context_free(context)
        unsafe context = nil
    }

    /// Both sides have closed, or the peer broke the protocol and was sent a close frame. Nothing will be read or queued any more.
    public var isFinished: Bool {
        if isBroken { return true }
        guard let context = unsafe context else { return false }
        return unsafe wslay_event_want_read(context) == 0 && wslay_event_want_write(context) == 0
    }

    /// The code of the peer's close frame; `abnormal` if none came.
    public var peerCloseCode: CloseCode {
        guard let context = unsafe context else { return .abnormal }
        return CloseCode(rawValue: unsafe wslay_event_get_status_code_received(context))
    }

    /// Parses the next bytes of the stream. Messages wait in `nextMessage()`, output in `takeOutput(into:)`.
    /// - Parameter nowMs: monotonic time in ms.
    public func receive(_ bytes: Span<UInt8>, nowMs: UInt64) {
        guard !isBroken else { return }
        self.nowMs = nowMs
        let result = unsafe bytes.withUnsafeBytes { buffer in
            unsafe input = unsafe buffer
            inputOffset = 0
            defer { unsafe input = unsafe UnsafeRawBufferPointer(start: nil, count: 0) }
            return unsafe wslay_event_recv(activeContext())
        }
        if result == 0 { flush() } else { fail() }
        releaseIdleContext()
    }

    /// Returns the oldest waiting message, or nil. Nil once this side closes.
    public func nextMessage() -> TextMessage? {
        guard !messages.isEmpty, !isClosing else { return nil }
        let message = messages.removeFirst()
        // Free the array of an idle socket.
        if messages.isEmpty { messages = [] }
        return message
    }

    /// Allows longer messages.
    public func raise(maximumBytes: Int) { self.maximumBytes = max(self.maximumBytes, maximumBytes) }

    /// The bytes of waiting messages.
    public var messageBytes: Int { messages.reduce(0) { $0 + $1.count } }

    /// The bytes of the incomplete message, as far as its frames announced them.
    public var partialBytes: Int { partial?.capacity ?? 0 }

    /// The number of waiting messages.
    public var messageCount: Int { isClosing ? 0 : messages.count }

    /// - Returns: false if this side has closed. The message is then dropped.
    @discardableResult public func send(_ text: Span<UInt8>) -> Bool { queue(WSLAY_TEXT_FRAME, text) }

    /// Sends a ping with this number, or repeats the last number: a peer may answer only the latest of several pings.
    @discardableResult public func sendPing(_ number: UInt64 = 0) -> Bool {
        pingNumber = max(pingNumber, number)
        let payload = pingNumber == 0 ? [] : (0..<8).map { UInt8(truncatingIfNeeded: pingNumber >> (56 - 8 * $0)) }
        return queue(WSLAY_PING, payload.span)
    }

    /// Starts the closing handshake. Waiting messages are dropped.
    public func close(_ code: CloseCode) {
        isClosing = true
        unsafe wslay_event_queue_close(activeContext(), code.rawValue, nil, 0)
        flush()
    }

    public var hasOutput: Bool { !output.isEmpty }

    /// Moves the output to the end of `buffer`.
    public func takeOutput(into buffer: inout [UInt8]) {
        if buffer.isEmpty { swap(&buffer, &output) } else { buffer.append(contentsOf: output) }
        output = []
    }

    private func queue(_ opcode: wslay_opcode, _ payload: Span<UInt8>) -> Bool {
        guard !isBroken else { return false }
        let result = unsafe payload.withUnsafeBufferPointer { bytes in
            var message = unsafe wslay_event_msg(
                opcode: UInt8(opcode.rawValue), msg: bytes.baseAddress, msg_length: bytes.count)
            return unsafe wslay_event_queue_msg(activeContext(), &message)
        }
        flush()
        releaseIdleContext()
        return result == 0
    }

    private func flush() {
        if !isBroken, unsafe wslay_event_send(activeContext()) != 0 { fail() }
    }

    /// wslay refused an invalid frame. It would close without a code, but RFC 6455 section 7.1.7 requires 1002.
    private func fail() {
        if !isClosing, role == .server { output += [0x88, 2, 0x03, 0xEA] }
        isClosing = true
        isBroken = true
    }

    private func refuse(_ code: CloseCode) {
        guard !isClosing else { return }
        isClosing = true
        partial = nil
        unsafe wslay_event_queue_close(context, code.rawValue, nil, 0)
        unsafe wslay_event_shutdown_read(context)
    }
}

// wslay's callbacks.
extension WebSocketMachine {
    @unsafe fileprivate func pull(_ target: UnsafeMutablePointer<UInt8>, _ capacity: Int) -> Int {
        let count = unsafe min(capacity, input.count - inputOffset)
        guard count > 0 else {
            // Zero the unmasked bytes that wslay has already parsed: they may be a capability.
            unsafe explicit_bzero(target, min(staleBytes, capacity))
            staleBytes = 0
            unsafe wslay_event_set_error(context, WSLAY_ERR_WOULDBLOCK.rawValue)
            return -1
        }
        unsafe memcpy(target, input.baseAddress! + inputOffset, count)
        inputOffset += count
        givenBytes += UInt64(count)
        staleBytes = max(staleBytes, 16 + count)
        return count
    }

    @unsafe fileprivate func push(_ bytes: UnsafePointer<UInt8>, _ count: Int) {
        unsafe output.append(contentsOf: UnsafeBufferPointer(start: bytes, count: count))
    }

    fileprivate func beginFrame(opcode: UInt8, isFinal: Bool, count: UInt64) {
        // RFC 6455 section 5.2. wslay accepts only the shortest form of a length.
        let lengthBytes: UInt64 = count < 126 ? 0 : count < 65_536 ? 2 : 8
        framedBytes += 2 + lengthBytes + (role == .server ? 4 : 0) + count
        // Pongs are counted once their number is known.
        if opcode >= 8 ? opcode != UInt8(WSLAY_PONG.rawValue) : count == 0 && !isFinal {
            guard countControlFrame() else { return }
        }
        isInText = false
        // Half a close code, which wslay would ignore.
        if opcode == UInt8(WSLAY_CONNECTION_CLOSE.rawValue), count == 1 { return refuse(.protocolError) }
        guard opcode < 8, !isClosing else { return }
        if opcode == UInt8(WSLAY_BINARY_FRAME.rawValue) { return refuse(.unsupportedData) }
        let message = partial ?? TextMessage()
        guard count <= UInt64(maximumBytes - message.count) else { return refuse(.messageTooBig) }
        message.reserve(Int(count))
        partial = message
        isInText = true
    }

    @unsafe fileprivate func takeChunk(_ bytes: UnsafePointer<UInt8>?, _ count: Int) {
        guard isInText, !isClosing, let bytes = unsafe bytes else { return }
        unsafe partial?.append(bytes, count)
    }

    /// - Returns: false if the limit is exceeded and the socket is closed.
    private func countControlFrame() -> Bool {
        if nowMs >= windowStartMs + Self.controlWindowMs { (windowStartMs, controlFrames) = (nowMs, 0) }
        controlFrames += 1
        if controlFrames > Self.controlFrameLimit { refuse(.policyViolation) }
        return controlFrames <= Self.controlFrameLimit
    }

    private func takePong(_ payload: Span<UInt8>) {
        pongCount += 1
        var number: UInt64 = 0
        for index in payload.indices.prefix(8) { number = number << 8 | UInt64(payload[index]) }
        if payload.count == 8, number > answeredPing, number <= pingNumber {
            answeredPing = number
        } else {
            _ = countControlFrame()
        }
    }

    fileprivate func endMessage(opcode: UInt8, _ payload: Span<UInt8>) {
        if opcode == UInt8(WSLAY_PONG.rawValue) { takePong(payload) }
        guard opcode == UInt8(WSLAY_TEXT_FRAME.rawValue), !isClosing, let message = partial else { return }
        messages.append(message)
        partial = nil
    }
}

/// A received text message in UTF-8 and its only copy. Zeroed by `wipe()` and on deinit.
public final class TextMessage {
    private var bytes: [UInt8] = []

    fileprivate init() {}

    /// Creates a message in memory for tests of handlers.
    public init(_ text: String) { bytes = Array(text.utf8) }

    deinit { wipe() }

    public var count: Int { bytes.count }
    fileprivate var capacity: Int { bytes.capacity }

    public func withText<R, E: Error>(_ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        let bytes = bytes
        return try use(bytes.span)
    }

    public func wipe() { Linux.wipe(&bytes) }

    fileprivate func reserve(_ more: Int) { bytes.reserveWiping(more) }

    fileprivate func append(_ chunk: UnsafePointer<UInt8>, _ count: Int) {
        reserve(count)
        unsafe bytes.append(contentsOf: UnsafeBufferPointer(start: chunk, count: count))
    }
}

/// Why a WebSocket was closed (RFC 6455 section 7.4).
public struct CloseCode: RawRepresentable, Sendable, Hashable {
    public let rawValue: UInt16
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    public static let normal = CloseCode(rawValue: 1000)
    public static let goingAway = CloseCode(rawValue: 1001)
    public static let protocolError = CloseCode(rawValue: 1002)
    public static let unsupportedData = CloseCode(rawValue: 1003)
    /// Never sent: the peer's close frame had no code.
    public static let none = CloseCode(rawValue: 1005)
    /// Never sent: the connection ended without a close frame.
    public static let abnormal = CloseCode(rawValue: 1006)
    public static let policyViolation = CloseCode(rawValue: 1008)
    public static let messageTooBig = CloseCode(rawValue: 1009)
    public static let internalError = CloseCode(rawValue: 1011)
}

/// wslay's C callbacks. Each is a single call of the machine.
private enum Callbacks {
    static var table: wslay_event_callbacks {
        var calls = wslay_event_callbacks()
        unsafe calls.recv_callback = { _, target, capacity, _, user in unsafe Callbacks.machine(user).pull(target!, capacity) }
        unsafe calls.send_callback = { _, bytes, count, _, user in
            unsafe Callbacks.machine(user).push(bytes!, count)
            return count
        }
        unsafe calls.genmask_callback = { _, target, count, _ in
            for index in 0..<count { unsafe target![index] = UInt8.random(in: .min ... .max) }
            return 0
        }
        unsafe calls.on_frame_recv_start_callback = { _, frame, user in
            unsafe Callbacks.machine(user).beginFrame(
                opcode: frame!.pointee.opcode, isFinal: frame!.pointee.fin != 0, count: frame!.pointee.payload_length)
        }
        unsafe calls.on_frame_recv_chunk_callback = { _, chunk, user in
            unsafe Callbacks.machine(user).takeChunk(chunk!.pointee.data, chunk!.pointee.data_length)
        }
        unsafe calls.on_msg_recv_callback = { _, message, user in
            let payload = unsafe UnsafeBufferPointer(start: message!.pointee.msg, count: message!.pointee.msg_length)
            unsafe Callbacks.machine(user).endMessage(opcode: message!.pointee.opcode, payload.span)
        }
        return calls
    }

    private static func machine(_ user: UnsafeMutableRawPointer?) -> WebSocketMachine {
        unsafe Unmanaged<WebSocketMachine>.fromOpaque(user!).takeUnretainedValue()
    }
}
