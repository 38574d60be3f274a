import CLlhttp
import Glibc

/// llhttp plus what it leaves to its user: limits, checks of a head, and storage. One per connection at a fixed address, because llhttp's callbacks
/// find it through `llhttp.data`.
@safe struct Machine: ~Copyable {
    private enum Part { case line, name, value, trailer }

    private let llhttp: UnsafeMutablePointer<llhttp_t>
    private let isServer: Bool
    private let limits: MessageLimits
    private(set) var store = ByteStore()
    private var fields: [Message.Field] = []
    private var scanner = HeadScanner()
    private var head = Message.Head()
    private var part = Part.line
    private var headerBytes = 0
    /// The length of the current name, of a header line or a trailer.
    private var nameCount = 0
    private var rawBodyBytes = 0
    /// The limit of this message's body.
    private var bodyLimit: Int
    private var hostCount = 0
    private var originCount = 0
    private var authorizationCount = 0
    private var isExpecting = false
    /// The bytes of the method so far. Nil once the space after it was read.
    private var methodBytes: [UInt8]? = []
    private var methodCount = 0
    /// The head requires something unsupported. Reported once the head is known to be well-formed.
    private var unmet: ParseFailure?
    /// Missing bytes of a chunk's data, then of the CR LF after it, which llhttp skips without a check.
    private var chunkBytesLeft: UInt64 = 0
    private var chunkEndLeft = 0
    /// The end of llhttp's input.
    private var inputEnd: UnsafePointer<CChar>?
    /// `HTTP/1.1`
    private static let version11: UInt64 = 0x4854_5450_2F31_2E31
    private(set) var phase = ParsePhase.idle
    private(set) var failure: ParseFailure?
    /// Client only: the request was HEAD, so the response has no body whatever its header lines say.
    var isAnswerToHead = false

    init(llhttp: UnsafeMutablePointer<llhttp_t>, isServer: Bool, limits: MessageLimits) {
        unsafe self.llhttp = unsafe llhttp
        self.isServer = isServer
        self.limits = limits
        bodyLimit = limits.bodyBytes
    }

    /// The bytes of the body that have arrived.
    var bodyCount: Int { phase == .body || phase == .complete ? store.count - head.bodyStart : 0 }

    /// Whether the sender waits for `100 Continue` and has sent no byte of the body.
    var awaitsContinue: Bool { isExpecting && phase == .body && store.count == head.bodyStart && rawBodyBytes == 0 }

    var isInterim: Bool { head.status > 0 && head.status < 200 && head.status != 101 }

    /// Call it with the next bytes before llhttp parses them.
    /// - Returns: false if the bytes are refused.
    mutating func prepare(_ bytes: UnsafePointer<CChar>, _ count: Int) -> Bool {
        unsafe inputEnd = bytes + count
        guard unsafe checkChunkEnd(bytes) else { return false }
        let before = scanner.byteCount
        if !scanner.isAtEnd, unsafe !scanner.scan(bytes, count) { return refuse(.malformed) }
        if scanner.isAtEnd { rawBodyBytes += count - (scanner.byteCount - before) }
        return true
    }

    /// Call it after llhttp: limits what llhttp skips without a callback. It has not parsed the last `untouched` bytes yet.
    mutating func checkProgress(untouched: Int) -> Bool {
        guard scanner.byteCount <= limits.rawHeadBytes else { return refuse(.headersTooLarge) }
        return phase == .complete || rawBodyBytes - untouched <= limits.rawBodyBytes(bodyLimit) || refuse(.bodyTooLarge)
    }

    /// llhttp paused after a chunk's header, where it accepts any byte as the line feed. Trailer lines follow the last chunk's header.
    mutating func endChunkHeader(_ rest: UnsafePointer<CChar>, _ count: Int) -> Bool {
        guard unsafe rest[-1] == 0x0A else { return refuse(.malformed) }
        guard chunkBytesLeft == 0 else { return true }
        scanner = .forTrailers()
        rawBodyBytes -= count
        return unsafe prepare(rest, count)
    }

    mutating func fail() -> ParseOutcome {
        let reason = failure ?? .malformed
        failure = reason
        phase = .failed
        // The request may hold a secret, and its sender may keep the connection open.
        store.wipe()
        return .failed(reason)
    }

    /// The status of a final response of which only the body failed.
    var statusOfFailedBody: Int? {
        phase == .failed && head.bodyStart > 0 && head.status >= 100 && !isInterim ? Int(head.status) : nil
    }

    /// Returns the complete message and prepares for the next.
    mutating func takeMessage() -> Message {
        precondition(phase == .complete)
        var taken = ByteStore()
        swap(&taken, &store)
        let message = Message(head: head, fields: fields, store: taken)
        var next = unsafe Machine(llhttp: llhttp, isServer: isServer, limits: limits)
        next.fields.reserveCapacity(message.headerCount)
        next.isAnswerToHead = isAnswerToHead
        self = next
        unsafe llhttp_reset(llhttp)
        return message
    }
}

// llhttp's callbacks. Each returns whether to continue.
extension Machine {
    mutating func begin() { phase = .head }

    mutating func appendTarget(_ bytes: UnsafePointer<CChar>, _ count: Int) -> Bool {
        guard store.count + count <= limits.targetBytes else { return refuse(.targetTooLong) }
        unsafe store.append(bytes, count)
        head.targetCount = store.count
        return true
    }

    mutating func appendName(_ bytes: UnsafePointer<CChar>, _ count: Int) -> Bool {
        headerBytes += count
        nameCount += count
        // RFC 9112 section 5.1: no space before the colon. Some builds of llhttp accept spaces in a name.
        for index in 0..<count where unsafe !UInt8(bitPattern: bytes[index]).isTokenByte { return refuse(.malformed) }
        if phase == .body { part = .trailer }
        if part != .name && part != .trailer {
            headerBytes += 4
            let start = Int32(store.count)
            fields.append(Message.Field(name: start..<start, value: start..<start))
            part = .name
        }
        guard headerBytes <= limits.headerBytes, fields.count <= limits.headerCount else { return refuse(.headersTooLarge) }
        if part == .name { unsafe store.append(bytes, count) }
        return true
    }

    mutating func endName() -> Bool {
        guard nameCount > 0 else { return refuse(.malformed) }
        nameCount = 0
        if part == .trailer { return true }
        let end = Int32(store.count)
        guard part == .name else { return refuse(.malformed) }
        fields[fields.count - 1].name = fields[fields.count - 1].name.lowerBound..<end
        fields[fields.count - 1].value = end..<end
        part = .value
        return true
    }

    mutating func appendValue(_ bytes: UnsafePointer<CChar>, _ count: Int) -> Bool {
        headerBytes += count
        guard headerBytes <= limits.headerBytes else { return refuse(.headersTooLarge) }
        if part == .value { unsafe store.append(bytes, count) }
        return true
    }

    mutating func endValue() -> Bool {
        guard part == .value else { return true }
        part = .line
        let start = fields[fields.count - 1].value.lowerBound
        while store.count > start, store[store.count - 1] == 0x20 || store[store.count - 1] == 0x09 { store.removeLast() }
        fields[fields.count - 1].value = start..<Int32(store.count)
        return checkField(fields[fields.count - 1])
    }

    private mutating func checkField(_ field: Message.Field) -> Bool {
        let (name, value) = (field.nameRange, field.valueRange)
        switch name.count {
        case 4 where store.isToken(name, "host"):
            hostCount += 1
            if isServer, !store.withSpan(value, { $0.isAuthority }) { return refuse(.malformed) }
        case 6 where isServer && store.isToken(name, "expect"):
            // RFC 9110 section 10.1.1: version 1.0 has no interim responses.
            isExpecting = unsafe llhttp.pointee.http_minor > 0
            if !store.withSpan(value, { $0.isListOf("100-continue") }) { unmet = .expectationFailed }
        case 6 where isServer && store.isToken(name, "origin"):
            // Two parsers could each choose a different one.
            originCount += 1
            if originCount > 1 { return refuse(.malformed) }
        case 13 where isServer && store.isToken(name, "authorization"):
            // As with `Origin`.
            authorizationCount += 1
            if authorizationCount > 1 { return refuse(.malformed) }
        case 14 where store.isToken(name, "content-length"):
            // llhttp reads an empty value as 0 and allows spaces inside.
            let isNumber = store.withSpan(value) { digits in digits.indices.allSatisfy { digits[$0] &- 0x30 < 10 } }
            guard isNumber, (1...18).contains(value.count) else { return refuse(.malformed) }
        case 16 where isServer && !limits.allowsContentEncoding && store.isToken(name, "content-encoding"):
            if !store.withSpan(value, { $0.isListOf("identity") }) { unmet = unmet ?? .unsupportedEncoding }
        case 17 where store.isToken(name, "transfer-encoding"):
            // Other codings would have to be decoded first.
            guard store.isToken(value, "chunked") else { return refuse(.malformed) }
        default: break
        }
        return true
    }

    /// - Returns: llhttp's code: 0 to continue, 1 if there is no body, -1 to stop.
    mutating func endHead() -> Int32 {
        head.bodyStart = store.count
        head.isVersion11 = unsafe llhttp.pointee.http_major == 1 && llhttp.pointee.http_minor == 1
        guard unsafe llhttp.pointee.http_major == 1, unsafe llhttp.pointee.http_minor <= 1 else { return stop(.malformed) }
        head.keepsAlive = unsafe llhttp_should_keep_alive(llhttp) != 0
        head.wantsUpgrade = unsafe llhttp.pointee.upgrade != 0
        let hasLength = unsafe UInt32(llhttp.pointee.flags) & F_CONTENT_LENGTH.rawValue != 0
        phase = .body
        if isServer {
            guard checkRequest() else { return stop(.malformed) }
            if let unmet { return stop(unmet) }
        } else {
            head.status = unsafe llhttp.pointee.status_code
            guard (100...999).contains(head.status) else { return stop(.malformed) }
            // RFC 9112 section 6.3: these have no body, whatever the header lines say. llhttp leaves the check to its user.
            if isAnswerToHead || head.status == 204 || head.status == 304 { return 1 }
        }
        if hasLength, unsafe !allowsBody(Int(clamping: llhttp.pointee.content_length)) { return stop(.bodyTooLarge) }
        return 0
    }

    /// True if a body of `count` bytes is within the limit.
    private mutating func allowsBody(_ count: Int) -> Bool {
        if count > bodyLimit, isServer {
            let (limits, method) = (limits, head.method)
            bodyLimit = store.withSpan(0..<head.targetCount) { limits.longBodyBytes(method, $0) }
        }
        return count <= bodyLimit
    }

    private func checkRequest() -> Bool {
        // llhttp accepts several spaces as one, and RTSP as HTTP.
        guard scanner.firstLineCount == methodCount + head.targetCount + 10, scanner.firstLineTail | 1 == Self.version11 else {
            return false
        }
        // RFC 9112 sections 3.2 (Host) and 6.1 (a transfer coding in HTTP/1.0 is faulty framing).
        guard hostCount == 1 || (hostCount == 0 && !head.isVersion11) else { return false }
        if !head.isVersion11, unsafe UInt32(llhttp.pointee.flags) & F_TRANSFER_ENCODING.rawValue != 0 { return false }
        return store.withSpan(0..<head.targetCount) { target in
            target.indices.allSatisfy { target[$0] > 0x20 && target[$0] < 0x7F && target[$0] != UInt8(ascii: "#") }
        }
    }

    /// - Returns: llhttp's code as in `endHead`. Normally a pause, to check how the line ended.
    mutating func beginChunk() -> Int32 {
        unsafe chunkBytesLeft = llhttp.pointee.content_length
        let total = unsafe bodyCount.addingReportingOverflow(Int(clamping: llhttp.pointee.content_length))
        return total.overflow || !allowsBody(total.partialValue) ? stop(.bodyTooLarge) : Int32(HPE_PAUSED.rawValue)
    }

    mutating func appendBody(_ bytes: UnsafePointer<CChar>, _ count: Int) -> Bool {
        guard allowsBody(bodyCount + count) else { return refuse(.bodyTooLarge) }
        unsafe store.append(bytes, count)
        guard chunkBytesLeft > 0 else { return true }
        chunkBytesLeft -= UInt64(count)
        if chunkBytesLeft > 0 { return true }
        chunkEndLeft = 2
        return unsafe checkChunkEnd(bytes + count)
    }

    /// Whether only CR LF follows a chunk's data, as far as it has arrived.
    private mutating func checkChunkEnd(_ bytes: UnsafePointer<CChar>) -> Bool {
        var next = unsafe bytes
        while unsafe chunkEndLeft > 0 && next < inputEnd! {
            guard unsafe next.pointee == (chunkEndLeft == 2 ? 0x0D : 0x0A) else { return refuse(.malformed) }
            chunkEndLeft -= 1
            unsafe next += 1
        }
        return true
    }

    mutating func end() { phase = .complete }

    private mutating func refuse(_ reason: ParseFailure) -> Bool {
        failure = reason
        return false
    }

    private mutating func stop(_ reason: ParseFailure) -> Int32 {
        failure = reason
        return -1
    }
}

// llhttp refuses methods that it does not know, and parses the target differently for some that it knows. So it only gets methods of `Method`.
// Another method is parsed here, and llhttp gets PUT instead.
extension Machine {
    enum MethodRead {
        case incomplete, refused
        /// Pass the bytes to llhttp unchanged.
        case direct
        /// Pass `line` to llhttp, then the bytes from `count` on.
        case read(line: [UInt8], count: Int)
    }

    private static let longestMethod = 32

    /// Parses the method at the start of a request.
    mutating func readMethod(_ bytes: UnsafePointer<CChar>, _ count: Int) -> MethodRead {
        guard isServer, var name = methodBytes else { return .direct }
        if name.isEmpty, unsafe readKnownMethod(bytes, count) { return .direct }
        var index = 0
        // RFC 9112 section 2.2: skip blank lines before a request line.
        while unsafe name.isEmpty && index < count && (bytes[index] == 0x0D || bytes[index] == 0x0A) { index += 1 }
        while index < count {
            let byte = unsafe UInt8(bitPattern: bytes[index])
            index += 1
            if byte == 0x20, !name.isEmpty {
                (methodBytes, methodCount) = (nil, name.count)
                head.method = Method(name: name.span)
                return .read(line: (head.method == .other ? Array("PUT".utf8) : name) + [0x20], count: index)
            }
            // Methods are case-sensitive, and no registered one has lower-case letters.
            guard byte.isTokenByte, !(0x61...0x7A).contains(byte), name.count < Self.longestMethod else {
                _ = refuse(.malformed)
                return .refused
            }
            name.append(byte)
        }
        if !name.isEmpty { begin() }
        methodBytes = name
        return .incomplete
    }

    /// The usual case: a known method at the start of the bytes, with the space after it.
    private mutating func readKnownMethod(_ bytes: UnsafePointer<CChar>, _ count: Int) -> Bool {
        guard let space = unsafe memchr(bytes, 0x20, min(count, Method.longestName + 1)) else { return false }
        let length = unsafe UnsafePointer(space.assumingMemoryBound(to: CChar.self)) - bytes
        let start = unsafe UnsafeRawPointer(bytes).assumingMemoryBound(to: UInt8.self)
        let method = Method(name: unsafe Span(_unsafeStart: start, count: length))
        guard method != .other else { return false }
        (methodBytes, methodCount) = (nil, length)
        head.method = method
        return true
    }
}
