import Testing

@testable import TLS

@Suite struct TLSSessionTests {
    /// A server and a client connected in memory.
    struct Pair {
        let server: TLSSession
        let client: TLSSession
        var serverPlaintext: [UInt8] = []
        var clientPlaintext: [UInt8] = []

        init(_ serverContext: TLSContext, _ clientContext: TLSContext, host: String) throws {
            server = try TLSSession(accepting: serverContext)
            client = try TLSSession(connecting: clientContext, to: host)
        }

        /// Transfers bytes in pieces of `step` until neither end has output. Errors appear in the states.
        mutating func run(step: Int = .max) {
            while client.hasCiphertext || server.hasCiphertext {
                Self.carry(from: client, to: server, step, &serverPlaintext)
                Self.carry(from: server, to: client, step, &clientPlaintext)
            }
        }

        static func carry(from: TLSSession, to: TLSSession, _ step: Int, _ plaintext: inout [UInt8]) {
            var bytes: [UInt8] = []
            from.takeCiphertext(into: &bytes)
            var rest = bytes[...]
            while !rest.isEmpty {
                let piece = Array(rest.prefix(step))
                rest = rest.dropFirst(piece.count)
                try? to.receive(piece.span, into: &plaintext)
            }
        }
    }

    static func pair(
        names: [String] = ["localhost", "127.0.0.1", "::1"], from: Int = -3600, to: Int = 86400, host: String = "localhost",
        trusted: Bool = true, serverALPN: [String] = ["h2"], clientALPN: [String] = ["h2"]
    ) throws -> Pair {
        let identity = try SelfSignedCertificate.make(names: names, from: from, to: to)
        let authority = trusted ? identity.certificate : try SelfSignedCertificate.make(names: names, days: 1).certificate
        return try Pair(
            .server(certificateChain: identity.certificate, privateKey: identity.privateKey.span, alpn: serverALPN),
            .client(trust: .authorities(authority), alpn: clientALPN), host: host)
    }

    @Test(arguments: [1, 7, 1000, Int.max])
    func transfersBytesInPiecesOfAnySize(step: Int) throws {
        var pair = try Self.pair()
        pair.run(step: step)
        #expect(pair.client.state == .established)
        #expect(pair.server.state == .established)
        #expect(pair.client.negotiatedProtocol == "h2")
        #expect(pair.server.negotiatedProtocol == "h2")

        let question = [UInt8]((0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        try pair.client.send(question.span)
        try pair.server.send(Array("answer".utf8).span)
        pair.run(step: step)
        #expect(pair.serverPlaintext == question)
        #expect(pair.clientPlaintext == Array("answer".utf8))
    }

    @Test(arguments: ["localhost", "127.0.0.1", "::1", "LOCALHOST"])
    func acceptsEachNameOfTheCertificate(host: String) throws {
        var pair = try Self.pair(host: host)
        pair.run()
        #expect(pair.client.state == .established)
    }

    @Test(arguments: ["api.push.apple.com", "127.0.0.2", "localhost.evil.example", "xlocalhost"])
    func refusesAnotherHost(host: String) throws {
        var pair = try Self.pair(host: host)
        pair.run()
        #expect(pair.client.state == .failed(.wrongHost))
        // The server gets an alert.
        guard case .failed(.alert) = pair.server.state else {
            Issue.record("the server's state is \(pair.server.state)")
            return
        }
        #expect(throws: TLSError.wrongHost) { try pair.client.send([1].span) }
    }

    @Test func refusesAnExpiredCertificate() throws {
        var pair = try Self.pair(from: -7200, to: -3600)
        pair.run()
        #expect(pair.client.state == .failed(.certificateExpired))
    }

    @Test func refusesACertificateNotYetValid() throws {
        var pair = try Self.pair(from: 86400, to: 90000)
        pair.run()
        #expect(pair.client.state == .failed(.certificateNotYetValid))
    }

    @Test func refusesAnUnknownAuthority() throws {
        var pair = try Self.pair(trusted: false)
        pair.run()
        #expect(pair.client.state == .failed(.untrusted))
    }

    @Test func systemTrustRefusesASelfSignedCertificate() throws {
        let identity = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
        var pair = try Pair(
            .server(certificateChain: identity.certificate, privateKey: identity.privateKey.span, alpn: []),
            .client(trust: .system, alpn: []), host: "localhost")
        pair.run()
        #expect(pair.client.state == .failed(.untrusted))
    }

    @Test func servesAClientWithoutALPN() throws {
        var pair = try Self.pair(clientALPN: [])
        pair.run()
        #expect(pair.server.state == .established)
        #expect(pair.server.negotiatedProtocol == nil)
    }

    @Test func refusesAClientWithOtherProtocolsOnly() throws {
        var pair = try Self.pair(clientALPN: ["spdy/3"])
        pair.run()
        #expect(pair.client.state == .failed(.alert(120)))  // no_application_protocol
    }

    @Test func theServersOrderOfProtocolsDecides() throws {
        var pair = try Self.pair(serverALPN: ["h2", "http/1.1"], clientALPN: ["http/1.1", "h2"])
        pair.run()
        #expect(pair.client.negotiatedProtocol == "h2")
    }

    @Test func refusesBytesThatAreNotTLS() throws {
        let pair = try Self.pair()
        var plaintext: [UInt8] = []
        #expect(throws: TLSError.self) {
            try pair.server.receive(Array("GET / HTTP/1.1\r\nHost: x\r\n\r\n".utf8).span, into: &plaintext)
        }
        guard case .failed(.protocolViolation(let phrase)) = pair.server.state else {
            Issue.record("the state is \(pair.server.state)")
            return
        }
        #expect(phrase == "http request")
        #expect(plaintext.isEmpty)
    }

    @Test func aFlippedBitEndsTheSession() throws {
        var pair = try Self.pair()
        pair.run()
        try pair.client.send(Array("secret".utf8).span)
        var bytes: [UInt8] = []
        pair.client.takeCiphertext(into: &bytes)
        bytes[bytes.count - 1] ^= 1
        var plaintext: [UInt8] = []
        #expect(throws: TLSError.self) { try pair.server.receive(bytes.span, into: &plaintext) }
        #expect(plaintext.isEmpty)
    }

    @Test func sendingBeforeTheHandshakeIsRefused() throws {
        let pair = try Self.pair()
        #expect(throws: TLSError.notEstablished) { try pair.client.send([1].span) }
        #expect(pair.client.state == .handshaking)
    }

    @Test func closingIsSeenByThePeer() throws {
        var pair = try Self.pair()
        pair.run()
        pair.client.close()
        pair.run()
        #expect(pair.server.state == .closed)
        // The other direction still works.
        try pair.server.send([7].span)
        pair.run()
        #expect(pair.clientPlaintext == [7])
    }

    /// An array that grows leaves plaintext behind. Capacity for the ciphertext suffices for the plaintext.
    @Test(arguments: [1, 200, 16_384])
    func plaintextFitsTheReservedCapacity(count: Int) throws {
        var pair = try Self.pair()
        pair.run()
        for _ in 0..<3 {
            try pair.client.send([UInt8](repeating: 0x61, count: count).span)
            var ciphertext: [UInt8] = []
            pair.client.takeCiphertext(into: &ciphertext)
            var plaintext: [UInt8] = []
            plaintext.reserveCapacity(ciphertext.count)
            let capacity = plaintext.capacity
            try pair.server.receive(ciphertext.span, into: &plaintext)
            #expect(plaintext.count == count)
            #expect(plaintext.capacity == capacity)
        }
    }

    @Test func ciphertextIsAppended() throws {
        let pair = try Self.pair()
        var bytes: [UInt8] = [1, 2]
        pair.client.takeCiphertext(into: &bytes)
        #expect(bytes.prefix(3) == [1, 2, 22])  // a handshake record
        #expect(!pair.client.hasCiphertext)
    }

    @Test(arguments: ["", "a b", "a\0b", String(repeating: "a", count: 254)])
    func refusesInvalidHostNames(host: String) throws {
        let context = try TLSContext.client(trust: .system, alpn: [])
        #expect(throws: TLSError.badName) { _ = try TLSSession(connecting: context, to: host) }
    }
}

@Suite struct TLSContextTests {
    @Test func refusesAKeyOfAnotherCertificate() throws {
        let one = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
        let other = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
        #expect(throws: TLSError.keyMismatch) {
            _ = try TLSContext.server(certificateChain: one.certificate, privateKey: other.privateKey.span, alpn: [])
        }
    }

    @Test(arguments: [[], Array("not PEM".utf8), Array("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".utf8)])
    func refusesInvalidCertificates(text: [UInt8]) throws {
        let identity = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
        #expect(throws: TLSError.badCertificate) {
            _ = try TLSContext.server(certificateChain: text, privateKey: identity.privateKey.span, alpn: [])
        }
        #expect(throws: TLSError.badCertificate) { _ = try TLSContext.client(trust: .authorities(text), alpn: []) }
        #expect(throws: TLSError.badKey) {
            _ = try TLSContext.server(certificateChain: identity.certificate, privateKey: text.span, alpn: [])
        }
    }

    @Test func refusesABrokenCertificateAfterAValidOne() throws {
        let good = try SelfSignedCertificate.make(names: ["localhost"], days: 1).certificate
        let text = good + Array("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".utf8)
        #expect(throws: TLSError.badCertificate) { _ = try TLSContext.client(trust: .authorities(text), alpn: []) }
    }

    @Test(arguments: ["", String(repeating: "x", count: 256)])
    func refusesInvalidProtocolNames(name: String) {
        #expect(throws: TLSError.badName) { _ = try TLSContext.client(trust: .system, alpn: [name]) }
    }

    @Test(arguments: ["", "a,DNS:b", "a b", "é", "dir/x"])
    func refusesInvalidCertificateNames(name: String) {
        #expect(throws: TLSError.badName) { _ = try SelfSignedCertificate.make(names: [name], days: 1) }
    }

    @Test func refusesACertificateWithoutNames() {
        #expect(throws: TLSError.badName) { _ = try SelfSignedCertificate.make(names: [], days: 1) }
    }
}
