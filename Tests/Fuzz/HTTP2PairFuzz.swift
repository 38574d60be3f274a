import HTTP2

/// A server and an honest client. The input controls the transfer of their bytes and may change them.
struct HTTP2PairFuzz {
    private struct End {
        let session: HTTP2Session
        var watch: HTTP2Watch
        var outbox: [UInt8] = []
        var hasFailed = false
        /// Streams with a complete message, and its body.
        var received: [Int32: [UInt8]] = [:]
        var whole: [Int32] = []
        var open: Set<Int32> = []

        init(_ role: HTTP2Session.Role) {
            var limits = HTTP2Limits(bodyBytes: 2000, concurrentStreams: 4)
            limits.wastedStreams = 20
            guard let session = try? HTTP2Session(role, limits: limits) else { fatalError("a session begins") }
            (self.session, watch) = (session, HTTP2Watch(role: role, limits: limits))
            collect()
        }

        mutating func collect() {
            do { try session.takeOutbound(into: &outbox) } catch { hasFailed = true }
            for event in session.takeEvents() {
                watch.see(event)
                switch event {
                case .headers(let id, _):
                    open.insert(id)
                    received[id] = []
                case .data(let id, let data): received[id, default: []] += data.bytes
                case .end(let id): if watch.hasHead(id) { whole.append(id) }
                case .closed(let id, _): open.remove(id)
                default: break
                }
            }
        }

        mutating func receive(_ bytes: [UInt8]) {
            guard !hasFailed else { return }
            do { try session.receive(bytes.span) } catch { hasFailed = true }
            collect()
        }
    }

    private var client = End(.client)
    private var server = End(.server)
    private var isHonest = true
    private var pings = 0
    private var requests: [Int32: [UInt8]] = [:]
    private var answers: [Int32: [UInt8]] = [:]

    static func run(_ input: [UInt8]) {
        var fuzz = HTTP2PairFuzz()
        var input = FuzzInput(input)
        while !input.isAtEnd { fuzz.take(input.byte(), &input) }
        fuzz.finish()
    }

    private mutating func take(_ choice: UInt8, _ input: inout FuzzInput) {
        switch choice & 7 {
        case 0: request(choice, [UInt8](repeating: choice, count: input.number(upTo: 255) * Int(choice >> 5)))
        case 1: answer([UInt8](repeating: choice, count: input.number(upTo: 255) * Int(choice >> 5)))
        case 2: Self.carry(&client, &server, Int(choice >> 3))
        case 3: Self.carry(&server, &client, Int(choice >> 3))
        case 4: if Self.damage(&client.outbox, choice >> 3, &input) { isHonest = false }
        case 5: if Self.damage(&server.outbox, choice >> 3, &input) { isHonest = false }
        case 6:
            guard let id = requests.keys.max() else { return }
            isHonest = false
            try? client.session.reset(stream: id, .cancel)
            client.collect()
        default:
            // A hundred unanswered pings are a flood.
            pings += 1
            if pings > 50 { return }
            try? (choice & 8 == 0 ? client : server).session.submitPing(UInt64(choice))
            client.collect()
            server.collect()
        }
    }

    private mutating func request(_ choice: UInt8, _ body: [UInt8]) {
        // The limit on streams is unknown before the peer's settings.
        guard requests.count < 30, client.session.hasRemoteSettings || requests.isEmpty else { return }
        var head: HTTP2Headers = [":method": "POST", ":scheme": "https", ":authority": "x", ":path": "/"]
        for index in 0..<Int(choice >> 3 & 3) {
            head.append("x\(index)", String(repeating: "y", count: 40), choice & 0x80 == 0 ? .incremental : .never)
        }
        if let id = try? client.session.submitRequest(head, body: body) { requests[id] = body }
        client.collect()
    }

    private mutating func answer(_ body: [UInt8]) {
        guard let id = server.whole.first(where: { answers[$0] == nil }) else { return }
        answers[id] = body
        do { try server.session.submitResponse(stream: id, [":status": "200"], body: body) } catch {
            require(!isHonest, "a request that came whole can be answered")
        }
        server.collect()
    }

    private static func carry(_ from: inout End, _ to: inout End, _ count: Int) {
        let bytes = Array(from.outbox.prefix(count == 0 ? .max : count * 3))
        from.outbox.removeFirst(bytes.count)
        to.receive(bytes)
    }

    /// - Returns: whether the bytes changed.
    private static func damage(_ bytes: inout [UInt8], _ kind: UInt8, _ input: inout FuzzInput) -> Bool {
        guard !bytes.isEmpty else { return false }
        let place = (Int(input.byte()) << 8 | Int(input.byte())) % bytes.count
        let before = bytes
        switch kind & 3 {
        case 0: bytes[place] = input.byte()
        case 1: bytes.removeSubrange(place..<min(bytes.count, place + input.number(upTo: 20)))
        case 2: bytes.insert(contentsOf: input.bytes(input.number(upTo: 20)), at: place)
        default: bytes.insert(contentsOf: bytes[place..<min(bytes.count, place + 9 + input.number(upTo: 60))], at: place)
        }
        return bytes != before
    }

    /// Answers and transfers the rest. Between honest ends all of it arrives, and every stream ends.
    private mutating func finish() {
        var rounds = 0
        repeat {
            Self.carry(&client, &server, 0)
            while server.whole.contains(where: { answers[$0] == nil }) { answer([0x7A]) }
            Self.carry(&server, &client, 0)
            rounds += 1
            require(rounds < 1000, "the ends come to rest")
        } while !(client.outbox.isEmpty && server.outbox.isEmpty)
        guard isHonest else { return }
        require(!client.hasFailed && !server.hasFailed, "an honest peer is served")
        require(server.received == requests, "each request arrives")
        require(client.received == answers && answers.count == requests.count, "each answer arrives")
        require(client.session.openStreams == 0 && server.session.openStreams == 0, "every stream ends")
    }
}
