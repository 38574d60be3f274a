import TLS

/// A server's TLS session and an honest client. The input controls the transfer of their bytes: complete, in part, twice, or changed.
struct TLSFuzz {
    private static let contexts: (server: TLSContext, client: TLSContext) = {
        guard let identity = try? SelfSignedCertificate.make(names: ["localhost"], days: 1),
            let server = try? TLSContext.server(
                certificateChain: identity.certificate, privateKey: identity.privateKey.span, alpn: ["h2", "http/1.1"]),
            let client = try? TLSContext.client(trust: .authorities(identity.certificate), alpn: ["h2"])
        else { fatalError("contexts") }
        return (server, client)
    }()

    /// One end: its session, sent and received plaintext.
    private struct End {
        let session: TLSSession
        var sent: [UInt8] = []
        var plaintext: [UInt8] = []
        /// Ciphertext not yet transferred.
        var outbox: [UInt8] = []
        var hasClosed = false
        var received = 0
        var written = 0

        mutating func close() {
            let state = session.state
            session.close()
            if state == .established || state == .closed { hasClosed = true }
            collect()
        }

        mutating func send(_ bytes: [UInt8]) {
            if hasClosed { return }
            let state = session.state
            do {
                try session.send(bytes.span)
                require(state == .established || state == .closed, "nothing is sent before the handshake")
                sent += bytes
            } catch {
                if case .failed(let reason) = state { require(error == reason, "a failure is for good") }
            }
            collect()
        }

        mutating func receive(_ bytes: [UInt8]) {
            let (state, before) = (session.state, plaintext.count)
            received += bytes.count
            do {
                try session.receive(bytes.span, into: &plaintext)
            } catch {
                require(session.state == .failed(error), "the state says what was thrown")
            }
            if case .failed = state { require(session.state == state, "a failure is for good") }
            if state != .established, state != .handshaking {
                require(plaintext.count == before, "nothing is read after the end")
            }
            collect()
        }

        mutating func collect() {
            let before = outbox.count
            session.takeCiphertext(into: &outbox)
            written += outbox.count - before
            require(!session.hasCiphertext, "all ciphertext is taken")
        }
    }

    private var client: End
    private var server: End
    private var isHonest = true

    static func run(_ input: [UInt8]) {
        guard let server = try? TLSSession(accepting: contexts.server),
            let client = try? TLSSession(connecting: contexts.client, to: "localhost")
        else { fatalError("sessions begin") }
        var fuzz = TLSFuzz(client: End(session: client), server: End(session: server))
        fuzz.client.collect()
        var input = FuzzInput(input)
        while !input.isAtEnd {
            fuzz.take(input.byte(), &input)
            fuzz.check()
        }
        fuzz.finish()
    }

    private mutating func take(_ choice: UInt8, _ input: inout FuzzInput) {
        switch choice & 7 {
        case 0: Self.carry(&client, &server, Int(choice >> 3))
        case 1: Self.carry(&server, &client, Int(choice >> 3))
        case 2: if Self.damage(&client.outbox, choice, &input) { isHonest = false }
        case 3: if Self.damage(&server.outbox, choice, &input) { isHonest = false }
        case 4: client.send(input.bytes(input.number(upTo: 40)))
        case 5: server.send(input.bytes(input.number(upTo: 40)))
        case 6:
            isHonest = false
            server.receive(input.bytes(input.number(upTo: 200)))
        default:
            if choice & 8 == 0 { server.close() } else { client.close() }
        }
    }

    /// Transfers all bytes, or a part of them.
    private static func carry(_ from: inout End, _ to: inout End, _ count: Int) {
        let bytes = Array(from.outbox.prefix(count == 0 ? .max : count * 7))
        from.outbox.removeFirst(bytes.count)
        to.receive(bytes)
    }

    /// - Returns: whether the bytes changed.
    private static func damage(_ bytes: inout [UInt8], _ choice: UInt8, _ input: inout FuzzInput) -> Bool {
        guard !bytes.isEmpty else { return false }
        let place = (Int(input.byte()) << 8 | Int(input.byte())) % bytes.count
        let before = bytes
        switch choice >> 3 & 3 {
        case 0: bytes[place] = input.byte()
        case 1: bytes.removeSubrange(place..<min(bytes.count, place + input.number(upTo: 40)))
        case 2: bytes.insert(contentsOf: input.bytes(input.number(upTo: 40)), at: place)
        default: bytes.insert(contentsOf: bytes[place..<min(bytes.count, place + 5 + input.number(upTo: 250))], at: place)
        }
        return bytes != before
    }

    private func check() {
        require(client.sent.starts(with: server.plaintext), "the server reads what the client sent")
        require(server.sent.starts(with: client.plaintext), "the client reads what the server sent")
        require(server.written <= 8192 + 2 * server.sent.count + 100 * server.received, "an answer is bounded")
        for end in [client, server] where isHonest {
            if case .failed(let error) = end.session.state { fatalError("an honest peer is refused: \(error)") }
        }
    }

    /// Transfers the rest. Between honest ends all of it arrives.
    private mutating func finish() {
        while !client.outbox.isEmpty || !server.outbox.isEmpty {
            Self.carry(&client, &server, 0)
            Self.carry(&server, &client, 0)
            check()
        }
        guard isHonest else { return }
        require(server.plaintext == client.sent && client.plaintext == server.sent, "all of it arrives")
        require(server.session.negotiatedProtocol == "h2" && client.session.negotiatedProtocol == "h2", "h2 is agreed on")
    }
}
