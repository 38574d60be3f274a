import HTTP1

/// The server's reader of HTTP/1.1: the input is a stream of requests.
enum RequestFuzz {
    /// Small, so that short inputs reach them.
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
        /// Where each request ended in the stream.
        var ends: [Int] = []
        var failure: ParseFailure?
        var phase = ParsePhase.idle
        var awaitsContinue = false

        /// Of several faults the one that is named may depend on how the stream is cut; whether there is one may not.
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
