import CLlhttp

/// Parses the requests of a connection (RFC 9112) one after the other, without I/O. After `.complete` call `takeMessage()` before parsing further
/// bytes.
public final class RequestParser {
    let handle: Parser

    public init(limits: MessageLimits = MessageLimits()) {
        handle = Parser(isServer: true, limits: limits)
    }

    public var phase: ParsePhase { unsafe handle.machine.pointee.phase }

    /// Whether the sender waits for `100 Continue` and has sent no byte of the body.
    public var awaitsContinue: Bool { unsafe handle.machine.pointee.awaitsContinue }

    public func parse(_ bytes: Span<UInt8>) -> ParseOutcome { handle.parse(bytes) }

    /// The bytes of the current message's body that have arrived.
    public var bodyCount: Int { unsafe handle.machine.pointee.bodyCount }

    /// Zeroes an incomplete message. The parser accepts no further bytes.
    public func abandon() { _ = unsafe handle.machine.pointee.fail() }

    /// Returns the message that `.complete` announced.
    public func takeMessage() -> Message { unsafe handle.machine.pointee.takeMessage() }
}

/// Parses the responses of a connection for a client, without I/O. Skips interim responses (1xx except 101).
public final class ResponseParser {
    private let handle: Parser

    public init(limits: MessageLimits = MessageLimits()) {
        handle = Parser(isServer: false, limits: limits)
    }

    /// Call it before the response to a HEAD request, which has no body whatever its header lines say.
    public func expectNoBody(_ isAnswerToHead: Bool) { unsafe handle.machine.pointee.isAnswerToHead = isAnswerToHead }

    public func parse(_ bytes: Span<UInt8>) -> ParseOutcome {
        var consumed = 0
        while true {
            let outcome = handle.parse(bytes.extracting(consumed..<bytes.count))
            guard case .complete(let count) = outcome else { return outcome }
            consumed += count
            guard unsafe handle.machine.pointee.isInterim else { return .complete(consumed: consumed) }
            _ = unsafe handle.machine.pointee.takeMessage()
        }
    }

    /// Call it at the end of the stream. It completes a response without a length; any other incomplete response fails.
    public func finish() -> ParseOutcome { handle.finish() }

    public func takeMessage() -> Message { unsafe handle.machine.pointee.takeMessage() }

    /// After a failure: the status of a response whose head was valid, but whose body is invalid, too long or cut off. Nil in all other cases.
    public var statusOfFailedBody: Int? { unsafe handle.machine.pointee.statusOfFailedBody }
}

/// Limits of a message. All are in bytes except `headerCount`.
public struct MessageLimits: Sendable {
    public var targetBytes: Int
    /// Names and values of all header lines, plus four bytes per line for the colon, space and line end.
    public var headerBytes: Int
    public var headerCount: Int
    public var bodyBytes: Int
    /// The limit of the body for requests whose method and target `allowsLongBody` accepts. It is called only for a body over `bodyBytes`.
    public var longBodyBytes = 0
    public var allowsLongBody: (@Sendable (Method, Span<UInt8>) -> Bool)?
    /// Accepts a `Content-Encoding`. The owner then decodes the body itself.
    public var allowsContentEncoding = false

    public init(targetBytes: Int = 8192, headerBytes: Int = 16384, headerCount: Int = 100, bodyBytes: Int = 16384) {
        self.targetBytes = targetBytes
        self.headerBytes = headerBytes
        self.headerCount = headerCount
        self.bodyBytes = bodyBytes
    }

    /// The limit of a head's raw bytes. Also bounds what llhttp skips silently, such as blank lines.
    var rawHeadBytes: Int { targetBytes + headerBytes + 128 }
    /// The limit of any request's body.
    public var longestBodyBytes: Int { max(bodyBytes, allowsLongBody == nil ? 0 : longBodyBytes) }

    /// The limit of the body of a request that has more than `bodyBytes`.
    func longBodyBytes(_ method: Method, _ target: Span<UInt8>) -> Int {
        if let allowsLongBody, allowsLongBody(method, target) { longestBodyBytes } else { bodyBytes }
    }

    /// The limit of a body's raw bytes with chunk headers, extensions and trailers. A chunk of one byte costs six.
    func rawBodyBytes(_ bodyBytes: Int) -> Int { bodyBytes * 8 + headerBytes }
}

/// The result of parsing some bytes.
public enum ParseOutcome: Sendable, Equatable {
    /// All bytes were consumed and the message is incomplete.
    case incomplete
    /// The message ended after `consumed` bytes. `takeMessage()` returns it. Further bytes belong to the next message.
    case complete(consumed: Int)
    /// The message is refused. The parser accepts no further bytes.
    case failed(ParseFailure)
}

/// The parser's position in a message, on which its deadline depends.
public enum ParsePhase: Sendable, Equatable {
    /// No byte of a message has arrived.
    case idle
    case head
    case body
    case complete
    case failed
}

/// Why a message was refused.
public enum ParseFailure: Error, Sendable, Equatable {
    /// Not HTTP/1.x by RFC 9112, or framed ambiguously.
    case malformed
    case targetTooLong
    case headersTooLarge
    case bodyTooLarge
    /// `Expect` contains anything but `100-continue` (RFC 9110 section 10.1.1).
    case expectationFailed
    /// The body has a content coding (RFC 9110 section 8.4).
    case unsupportedEncoding
}

/// Owns a machine and its llhttp. No access to the machine is active while llhttp runs, because its callbacks modify it.
@safe struct Parser: ~Copyable {
    private let llhttp: UnsafeMutablePointer<llhttp_t>
    let machine: UnsafeMutablePointer<Machine>

    init(isServer: Bool, limits: MessageLimits) {
        unsafe llhttp = UnsafeMutablePointer<llhttp_t>.allocate(capacity: 1)
        unsafe llhttp_init(llhttp, isServer ? HTTP_REQUEST : HTTP_RESPONSE, Callbacks.settings)
        unsafe machine = UnsafeMutablePointer<Machine>.allocate(capacity: 1)
        unsafe machine.initialize(to: Machine(llhttp: llhttp, isServer: isServer, limits: limits))
        unsafe llhttp.pointee.data = UnsafeMutableRawPointer(machine)
    }

    deinit {
        unsafe machine.deinitialize(count: 1)
        unsafe machine.deallocate()
        unsafe llhttp.deallocate()
    }

    func parse(_ bytes: Span<UInt8>) -> ParseOutcome {
        if unsafe machine.pointee.phase == .failed { return unsafe machine.pointee.fail() }
        if unsafe machine.pointee.phase == .complete { return .complete(consumed: 0) }
        if bytes.count == 0 { return .incomplete }
        return unsafe bytes.withUnsafeBytes { unsafe parse($0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
    }

    private func parse(_ bytes: UnsafePointer<CChar>, _ count: Int) -> ParseOutcome {
        guard unsafe machine.pointee.prepare(bytes, count) else { return unsafe machine.pointee.fail() }
        var done = 0
        switch unsafe machine.pointee.readMethod(bytes, count) {
        case .direct: break
        case .refused: return unsafe machine.pointee.fail()
        case .incomplete: return unsafe machine.pointee.checkProgress(untouched: 0) ? .incomplete : machine.pointee.fail()
        case .read(let line, let count):
            done = count
            let result = unsafe line.withUnsafeBytes { line in
                unsafe llhttp_execute(llhttp, line.baseAddress!.assumingMemoryBound(to: CChar.self), line.count)
            }
            guard result == HPE_OK else { return unsafe machine.pointee.fail() }
        }
        while true {
            let result = unsafe llhttp_execute(llhttp, bytes + done, count - done)
            guard result == HPE_OK || result == HPE_PAUSED else { return unsafe machine.pointee.fail() }
            done = unsafe result == HPE_OK ? count : llhttp_get_error_pos(llhttp) - bytes
            guard unsafe machine.pointee.checkProgress(untouched: count - done) else { return unsafe machine.pointee.fail() }
            if result == HPE_OK { return .incomplete }
            if unsafe machine.pointee.phase == .complete { return .complete(consumed: done) }
            guard unsafe machine.pointee.endChunkHeader(bytes + done, count - done) else { return unsafe machine.pointee.fail() }
            unsafe llhttp_resume(llhttp)
        }
    }

    /// Call it at the end of the stream. It completes a response without a length.
    func finish() -> ParseOutcome {
        // llhttp doesn't know about our refusals and would report success.
        if unsafe machine.pointee.phase != .complete && machine.pointee.phase != .failed { _ = unsafe llhttp_finish(llhttp) }
        return unsafe machine.pointee.phase == .complete ? .complete(consumed: 0) : machine.pointee.fail()
    }
}

/// llhttp's C callbacks. Each is a single call of the machine.
private enum Callbacks {
    /// Allocated once and never freed, because llhttp keeps the address.
    nonisolated(unsafe) static let settings: UnsafePointer<llhttp_settings_t> = {
        let settings = UnsafeMutablePointer<llhttp_settings_t>.allocate(capacity: 1)
        var calls = llhttp_settings_t()
        unsafe calls.on_message_begin = {
            unsafe machine($0).pointee.begin()
            return 0
        }
        unsafe calls.on_url = { unsafe go(machine($0).pointee.appendTarget($1!, $2)) }
        unsafe calls.on_header_field = { unsafe go(machine($0).pointee.appendName($1!, $2)) }
        unsafe calls.on_header_field_complete = { unsafe machine($0).pointee.endName() ? 0 : -1 }
        unsafe calls.on_header_value = { unsafe go(machine($0).pointee.appendValue($1!, $2)) }
        unsafe calls.on_header_value_complete = { unsafe machine($0).pointee.endValue() ? 0 : -1 }
        unsafe calls.on_headers_complete = { unsafe machine($0).pointee.endHead() }
        unsafe calls.on_chunk_header = { unsafe machine($0).pointee.beginChunk() }
        unsafe calls.on_body = { unsafe go(machine($0).pointee.appendBody($1!, $2)) }
        // The pause stops llhttp at the message's last byte, before the next message.
        unsafe calls.on_message_complete = {
            unsafe machine($0).pointee.end()
            return Int32(HPE_PAUSED.rawValue)
        }
        unsafe settings.initialize(to: calls)
        return unsafe UnsafePointer(settings)
    }()

    private static func machine(_ parser: UnsafeMutablePointer<llhttp_t>?) -> UnsafeMutablePointer<Machine> {
        unsafe parser!.pointee.data.assumingMemoryBound(to: Machine.self)
    }

    private static func go(_ goesOn: Bool) -> Int32 { goesOn ? 0 : Int32(HPE_USER.rawValue) }
}
