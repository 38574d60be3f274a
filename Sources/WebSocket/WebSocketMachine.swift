import CWslay
import Glibc

/// One WebSocket after its handshake (RFC 6455), over wslay and with no I/O: bytes in, messages and bytes out. Text only. Not `Sendable`.
///
/// wslay checks framing, masking, UTF-8 and close codes, answers pings and close frames. Limits are added here. When `isFinished`, the
/// owner writes what `takeOutput` gives and closes the connection.
///
/// wslay holds two buffers of 4 KiB. Between frames there is nothing in them, nor in the rest of its state, so a machine at rest has no wslay
/// context; the next bytes make one.
@safe public final class WebSocketMachine {
    public enum Role: Sendable { case server, client }

    /// Pings, pongs and empty fragments taken from a peer in one `controlWindowMs`; one more closes with 1008. Answers to numbered pings
    /// don't count: otherwise the other side of a room could get this socket closed by arriving often.
    public static let controlFrameLimit = 100
    public static let controlWindowMs: UInt64 = 10_000

    private let role: Role
    private let maximumBytes: Int
    private var context: wslay_event_context_ptr?
    /// Bytes given to the context, and the length of the frames that it has seen begin. Equal: it stands between two frames.
    private var givenBytes: UInt64 = 0
    private var framedBytes: UInt64 = 0
    private var input = unsafe UnsafeRawBufferPointer(start: nil, count: 0)
    private var inputOffset = 0
    /// How much of wslay's read buffer holds bytes that were read already.
    private var staleBytes = 0
    private var output: [UInt8] = []
    private var partial: TextMessage?
    private var messages: [TextMessage] = []
    private var nowMs: UInt64 = 0
    private var windowStartMs: UInt64 = 0
    private var controlFrames = 0
    private var isBroken = false
    /// The frame being read belongs to a message; control frames may stand between its fragments.
    private var isInText = false
    /// A close frame of ours is queued or sent: nothing more is delivered.
    public private(set) var isClosing = false
    /// How often the peer answered `sendPing`.
    public private(set) var pongCount = 0
    /// The highest number that a ping carried, and the highest that the peer returned.
    private var pingNumber: UInt64 = 0
    public private(set) var answeredPing: UInt64 = 0

    /// - Parameter maximumBytes: the longest message taken, in bytes over all its fragments; a longer one closes with 1009.
    public init(role: Role, maximumBytes: Int = 16384) {
        unsafe context = nil
        self.role = role
        self.maximumBytes = maximumBytes
    }

    deinit { if unsafe context != nil { unsafe wslay_event_context_free(context) } }

    /// Whether wslay holds buffers at present.
    var isAtRest: Bool { unsafe context == nil }

    /// The context, made anew after a rest.
    @unsafe private func awake() -> wslay_event_context_ptr {
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

    /// Lets go of the context if it is between two frames, outside a message, with nothing to send.
    private func rest() {
        guard unsafe context != nil, !isClosing, !isBroken, partial == nil, givenBytes == framedBytes,
            unsafe wslay_event_want_write(context) == 0, unsafe wslay_event_want_read(context) != 0,
            unsafe wslay_event_get_close_received(context) == 0
        else { return }
        unsafe wslay_event_context_free(context)
        unsafe context = nil
    }

    /// Both sides said goodbye, or the peer broke the protocol and was told so: nothing more will be read or queued.
    public var isFinished: Bool {
        if isBroken { return true }
        guard let context = unsafe context else { return false }
        return unsafe wslay_event_want_read(context) == 0 && wslay_event_want_write(context) == 0
    }

    /// The code of the peer's close frame; `abnormal` when none came.
    public var peerCloseCode: CloseCode {
        guard let context = unsafe context else { return .abnormal }
        return CloseCode(rawValue: unsafe wslay_event_get_status_code_received(context))
    }

    /// Takes the next bytes of the stream. Messages wait in `nextMessage()`, answers in `takeOutput(into:)`.
    /// - Parameter nowMs: monotonic time in ms.
    public func receive(_ bytes: Span<UInt8>, nowMs: UInt64) {
        guard !isBroken else { return }
        self.nowMs = nowMs
        let result = unsafe bytes.withUnsafeBytes { buffer in
            unsafe input = unsafe buffer
            inputOffset = 0
            defer { unsafe input = unsafe UnsafeRawBufferPointer(start: nil, count: 0) }
            return unsafe wslay_event_recv(awake())
        }
        if result == 0 { flush() } else { breakOff() }
        rest()
    }

    /// The oldest message not yet taken. None is given out once this side closes.
    public func nextMessage() -> TextMessage? {
        guard !messages.isEmpty, !isClosing else { return nil }
        let message = messages.removeFirst()
        // An idle socket holds no more than it must.
        if messages.isEmpty { messages = [] }
        return message
    }

    /// How many messages wait to be taken.
    public var messageCount: Int { isClosing ? 0 : messages.count }

    /// - Returns: false when this side has closed: the message is dropped.
    @discardableResult public func send(_ text: Span<UInt8>) -> Bool { queue(WSLAY_TEXT_FRAME, text) }

    /// Sends a ping with this number, or with the last one again: a peer may answer the latest of several pings alone.
    @discardableResult public func sendPing(_ number: UInt64 = 0) -> Bool {
        pingNumber = max(pingNumber, number)
        let payload = pingNumber == 0 ? [] : (0..<8).map { UInt8(truncatingIfNeeded: pingNumber >> (56 - 8 * $0)) }
        return queue(WSLAY_PING, payload.span)
    }

    /// Starts the closing handshake. Messages not yet taken are dropped.
    public func close(_ code: CloseCode) {
        isClosing = true
        unsafe wslay_event_queue_close(awake(), code.rawValue, nil, 0)
        flush()
    }

    public var hasOutput: Bool { !output.isEmpty }

    /// Moves the bytes to be written to the end of `buffer`.
    public func takeOutput(into buffer: inout [UInt8]) {
        if buffer.isEmpty { swap(&buffer, &output) } else { buffer.append(contentsOf: output) }
        output = []
    }

    private func queue(_ opcode: wslay_opcode, _ payload: Span<UInt8>) -> Bool {
        guard !isBroken else { return false }
        let result = unsafe payload.withUnsafeBufferPointer { bytes in
            var message = unsafe wslay_event_msg(
                opcode: UInt8(opcode.rawValue), msg: bytes.baseAddress, msg_length: bytes.count)
            return unsafe wslay_event_queue_msg(awake(), &message)
        }
        flush()
        rest()
        return result == 0
    }

    private func flush() {
        if !isBroken, unsafe wslay_event_send(awake()) != 0 { breakOff() }
    }

    /// wslay met a frame that no peer may send. It would close without a code; RFC 6455 section 7.1.7 asks for 1002.
    private func breakOff() {
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

// What wslay calls.
extension WebSocketMachine {
    @unsafe func pull(_ target: UnsafeMutablePointer<UInt8>, _ capacity: Int) -> Int {
        let count = unsafe min(capacity, input.count - inputOffset)
        guard count > 0 else {
            // What wslay has read and unmasked lies in its buffer from `target` on: it may be a capability.
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

    @unsafe func push(_ bytes: UnsafePointer<UInt8>, _ count: Int) {
        unsafe output.append(contentsOf: UnsafeBufferPointer(start: bytes, count: count))
    }

    func beginFrame(opcode: UInt8, isFinal: Bool, count: UInt64) {
        // RFC 6455 section 5.2; wslay takes the shortest form of a length only.
        let lengthBytes: UInt64 = count < 126 ? 0 : count < 65_536 ? 2 : 8
        framedBytes += 2 + lengthBytes + (role == .server ? 4 : 0) + count
        // Pongs count when their number is known.
        if opcode >= 8 ? opcode != UInt8(WSLAY_PONG.rawValue) : count == 0 && !isFinal {
            guard countControlFrame() else { return }
        }
        isInText = false
        // Half a close code; wslay would take it for none.
        if opcode == UInt8(WSLAY_CONNECTION_CLOSE.rawValue), count == 1 { return refuse(.protocolError) }
        guard opcode < 8, !isClosing else { return }
        if opcode == UInt8(WSLAY_BINARY_FRAME.rawValue) { return refuse(.unsupportedData) }
        let message = partial ?? TextMessage()
        guard count <= UInt64(maximumBytes - message.count) else { return refuse(.messageTooBig) }
        message.reserve(Int(count))
        partial = message
        isInText = true
    }

    @unsafe func takeChunk(_ bytes: UnsafePointer<UInt8>?, _ count: Int) {
        guard isInText, !isClosing, let bytes = unsafe bytes else { return }
        unsafe partial?.append(bytes, count)
    }

    /// - Returns: false if it is one too many, and the peer is refused.
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

    func endMessage(opcode: UInt8, _ payload: Span<UInt8>) {
        if opcode == UInt8(WSLAY_PONG.rawValue) { takePong(payload) }
        guard opcode == UInt8(WSLAY_TEXT_FRAME.rawValue), !isClosing, let message = partial else { return }
        messages.append(message)
        partial = nil
    }
}
