import HTTP1

/// The server's HTTP/1.1 parser. The input is a stream of requests.
enum RequestFuzz {
    /// Small limits, so that short inputs reach them.
    static let limits = MessageLimits(targetBytes: 64, headerBytes: 256, headerCount: 8, bodyBytes: 64)

    struct Request: Equatable {
        let method: Method
        let target: [UInt8]
        let body: [UInt8]
        let values: [[UInt8]]
        let headerCount: Int
        let keepsAlive: Bool
        let isVersion11: Bool
        let wantsUpgrade: Bool

        init(_ message: Message) {
            method = message.method
            target = message.withTarget(copy)
            body = message.withBody(copy)
            headerCount = message.headerCount
            keepsAlive = message.keepsAlive
            isVersion11 = message.isVersion11
            wantsUpgrade = message.wantsUpgrade
            var values: [[UInt8]] = []
            for name: StaticString in [
                "host", "content-length", "transfer-encoding", "connection", "upgrade", "expect", "authorization", "x", "",
            ] {
                message.forEachHeader(name) { values.append(copy($0)) }
            }
            self.values = values
        }
    }

    struct Reading {
        var requests: [Request] = []
        /// The end of each request in the stream.
        var ends: [Int] = []
        var failure: ParseFailure?
        var phase = ParsePhase.idle
        var awaitsContinue = false

        /// Which of several faults is reported may depend on the pieces. Whether there is one may not.
        func isSame(as other: Reading) -> Bool {
            requests == other.requests && ends == other.ends && (failure == nil) == (other.failure == nil) && phase == other.phase
                && awaitsContinue == other.awaitsContinue
        }
    }

    static func read(_ pieces: [[UInt8]]) -> Reading {
        let parser = RequestParser(limits: limits)
        var reading = Reading()
        var taken = 0
        for piece in pieces {
            var start = 0
            while start < piece.count, reading.failure == nil {
                switch parser.parse(piece.span.extracting(start..<piece.count)) {
                case .incomplete:
                    taken += piece.count - start
                    start = piece.count
                case .complete(let consumed):
                    require((1...piece.count - start).contains(consumed), "a request ends within the bytes that were given")
                    taken += consumed
                    start += consumed
                    require(parser.parse([0x21].span) == .complete(consumed: 0), "no byte is taken before the message is")
                    reading.requests.append(Request(parser.takeMessage()))
                    reading.ends.append(taken)
                case .failed(let failure):
                    reading.failure = failure
                    require(parser.parse([0x21].span) == .failed(failure), "a refusal is for good")
                }
            }
        }
        reading.phase = parser.phase
        reading.awaitsContinue = parser.awaitsContinue
        return reading
    }

    static func run(_ input: [UInt8]) {
        let whole = read([input])
        for splitting in [Splitting.bytes, .pieces] {
            let split = read(splitting.split(input))
            require(split.isSame(as: whole), "the same comes of the \(splitting) as of the whole: \(split) \(whole)")
        }
        require((whole.failure == nil) == (whole.phase != .failed), "a refusal shows in the phase")
        var start = 0
        for (request, end) in zip(whole.requests, whole.ends) {
            let raw = Array(input[start..<end])
            start = end
            check(request, raw)
        }
    }

    private static func check(_ request: Request, _ raw: [UInt8]) {
        require(request.target.count <= limits.targetBytes, "a target within its limit")
        require(request.headerCount <= limits.headerCount, "header lines within their limit")
        require(request.body.count <= limits.bodyBytes, "a body within its limit")
        let alone = read([raw])
        require(alone.requests == [request] && alone.failure == nil, "a request is the same alone")
        guard let plain = PlainRequest(raw) else { fatalError("a request that RFC 9112 does not allow") }
        require(plain.target == request.target && plain.body == request.body, "target and body as RFC 9112 has them")
        require(plain.headers.count == request.headerCount, "as many header lines as RFC 9112 has")
        let headerBytes = plain.headers.reduce(0) { $0 + $1.name.count + $1.value.count }
        require(headerBytes <= limits.headerBytes, "headers within their limit")
    }
}

/// A second, deliberately simple and strict parser of one request (RFC 9112): every line ends in CR LF without folding, and the body has one length.
struct PlainRequest {
    private(set) var target: [UInt8] = []
    private(set) var headers: [(name: String, value: [UInt8])] = []
    private(set) var body: [UInt8] = []
    private var rest: ArraySlice<UInt8>

    /// - Returns: nil for anything but exactly one request.
    init?(_ raw: [UInt8]) {
        rest = raw[...]
        while rest.starts(with: [0x0D, 0x0A]) { rest = rest.dropFirst(2) }
        guard let words = line()?.split(separator: 0x20, omittingEmptySubsequences: false), words.count == 3,
            !words[0].isEmpty, words[0].allSatisfy(Self.isToken),
            !words[1].isEmpty, words[1].allSatisfy({ (0x21...0x7E).contains($0) && $0 != 0x23 }),
            words[2].elementsEqual("HTTP/1.1".utf8) || words[2].elementsEqual("HTTP/1.0".utf8)
        else { return nil }
        target = Array(words[1])
        while let line = line() {
            if line.isEmpty { break }
            guard let header = Self.header(line) else { return nil }
            headers.append(header)
        }
        let hosts = values("host").count
        guard hosts == 1 || (hosts == 0 && words[2].last == 0x30), readBody(isVersion11: words[2].last == 0x31), rest.isEmpty
        else {
            return nil
        }
    }

    func values(_ name: String) -> [[UInt8]] { headers.filter { $0.name == name }.map(\.value) }

    private mutating func line() -> ArraySlice<UInt8>? {
        guard let feed = rest.firstIndex(of: 0x0A), feed > rest.startIndex, rest[feed - 1] == 0x0D else { return nil }
        let line = rest[rest.startIndex..<feed - 1]
        guard !line.contains(0x0D) else { return nil }
        rest = rest[(feed + 1)...]
        return line
    }

    /// A header line: a token, a colon, a value of visible characters, spaces and bytes above ASCII.
    private static func header(_ line: ArraySlice<UInt8>) -> (name: String, value: [UInt8])? {
        guard let colon = line.firstIndex(of: 0x3A) else { return nil }
        let name = line[..<colon]
        var value = line[(colon + 1)...]
        guard !name.isEmpty, name.allSatisfy(isToken), value.allSatisfy({ $0 == 0x09 || ($0 >= 0x20 && $0 != 0x7F) }) else {
            return nil
        }
        while let first = value.first, first == 0x20 || first == 0x09 { value = value.dropFirst() }
        while let last = value.last, last == 0x20 || last == 0x09 { value = value.dropLast() }
        return (String(decoding: name, as: UTF8.self).lowercased(), Array(value))
    }

    private static func isToken(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }

    private mutating func readBody(isVersion11: Bool) -> Bool {
        let lengths = values("content-length")
        let codings = values("transfer-encoding")
        guard lengths.count + codings.count <= 1 else { return false }
        if let coding = codings.first {
            return isVersion11 && String(decoding: coding, as: UTF8.self).lowercased() == "chunked" && readChunks()
        }
        guard let digits = lengths.first else { return true }
        guard !digits.isEmpty, digits.allSatisfy({ (0x30...0x39).contains($0) }),
            let length = Int(String(decoding: digits, as: UTF8.self)), length <= rest.count
        else { return false }
        take(length)
        return true
    }

    private mutating func take(_ count: Int) {
        body += rest.prefix(count)
        rest = rest.dropFirst(count)
    }

    private mutating func readChunks() -> Bool {
        while let line = line() {
            let digits = line.prefix { $0 != 0x3B }
            guard !digits.isEmpty, digits.allSatisfy({ (0x30...0x39).contains($0) || (0x41...0x46).contains($0 & 0xDF) }),
                let size = Int(String(decoding: digits, as: UTF8.self), radix: 16), size <= rest.count
            else { return false }
            if size == 0 { return readTrailers() }
            take(size)
            guard rest.starts(with: [0x0D, 0x0A]) else { return false }
            rest = rest.dropFirst(2)
        }
        return false
    }

    private mutating func readTrailers() -> Bool {
        while let line = line() {
            if line.isEmpty { return true }
            guard Self.header(line) != nil else { return false }
        }
        return false
    }
}
