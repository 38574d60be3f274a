import TestCertificates
import Testing

@testable import TLS

/// Client certificates from files created by Debian's `openssl`.
@Suite struct ClientCertificateTests {
    /// 2026-01-31T00:00:00Z
    static let now: UInt64 = 1_769_817_600
    static let passphrase = Array("pass phräse".utf8)

    func with(_ body: (OpenSSLProgram) throws -> Void) throws {
        let openssl = try OpenSSLProgram()
        defer { openssl.end() }
        try body(openssl)
    }

    static func read(
        _ openssl: OpenSSLProgram, _ certificate: String, _ key: String, passphrase: [UInt8]? = nil
    ) throws -> ClientCertificate {
        let (certificate, key) = (try openssl.read(certificate), try openssl.read(key))
        guard let passphrase else { return try ClientCertificate(pem: certificate.span, key: key.span) }
        return try ClientCertificate(pem: certificate.span, key: key.span, passphrase: passphrase.span)
    }

    static func open(_ openssl: OpenSSLProgram, _ name: String, passphrase: [UInt8] = passphrase) throws -> ClientCertificate {
        let file = try openssl.read(name)
        return try ClientCertificate(pkcs12: file.span, passphrase: passphrase.span)
    }

    @Test func acceptsPEM() throws {
        try with { openssl in
            try openssl.makeCertificate("push")
            let certificate = try Self.read(openssl, "push.pem", "push.key")
            #expect(certificate.topics == ["com.example.app"])
            try certificate.check(nowS: Self.now)
            // Both in one file, in either order.
            let (pem, key) = (try openssl.read("push.pem"), try openssl.read("push.key"))
            for text in [pem + key, key + pem] { _ = try ClientCertificate(pem: text.span, key: text.span) }
        }
    }

    @Test func decryptsAKeyOnlyWithItsPassphrase() throws {
        try with { openssl in
            try openssl.makeCertificate("push")
            try openssl.run("pkcs8", "-topk8", "-in", "file:push.key", "-out", "file:locked.key", "-passout", "pass:pass phräse")
            _ = try Self.read(openssl, "push.pem", "locked.key", passphrase: Self.passphrase)
            #expect(throws: ClientCertificateError.needsPassphrase) { _ = try Self.read(openssl, "push.pem", "locked.key") }
            // An empty passphrase counts as none.
            #expect(throws: ClientCertificateError.needsPassphrase) {
                _ = try Self.read(openssl, "push.pem", "locked.key", passphrase: [])
            }
            #expect(throws: ClientCertificateError.wrongPassphrase) {
                _ = try Self.read(openssl, "push.pem", "locked.key", passphrase: Array("another".utf8))
            }
            // Longer than OpenSSL's limit.
            #expect(throws: ClientCertificateError.wrongPassphrase) {
                _ = try Self.read(openssl, "push.pem", "locked.key", passphrase: [UInt8](repeating: 65, count: 100_000))
            }
            // An unneeded passphrase is ignored.
            _ = try Self.read(openssl, "push.pem", "push.key", passphrase: Self.passphrase)
        }
    }

    @Test func reportsWhyPEMIsInvalid() throws {
        try with { openssl in
            try openssl.makeCertificate("push")
            try openssl.makeCertificate("other")
            #expect(throws: ClientCertificateError.keyMismatch) { _ = try Self.read(openssl, "push.pem", "other.key") }
            #expect(throws: ClientCertificateError.noKey) { _ = try Self.read(openssl, "push.pem", "push.pem") }
            #expect(throws: ClientCertificateError.noCertificate) { _ = try Self.read(openssl, "push.key", "push.key") }
            let pem = try openssl.read("push.pem")
            let broken = Array("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".utf8)
            #expect(throws: ClientCertificateError.badKey) { _ = try ClientCertificate(pem: pem.span, key: broken.span) }
            for nothing in [[], Array("no PEM".utf8)] {
                #expect(throws: ClientCertificateError.noCertificate) {
                    _ = try ClientCertificate(pem: nothing.span, key: pem.span)
                }
            }
        }
    }

    /// With today's ciphers, and with RC2 and 3DES as Keychain Access exports.
    @Test(arguments: [[], ["-legacy"]])
    func acceptsPKCS12(flags: [String]) throws {
        try with { openssl in
            try openssl.makeCertificate("push", topics: ["com.example.app", "com.example.app.voip"])
            try openssl.run(
                ["pkcs12", "-export"] + flags + [
                    "-in", "file:push.pem", "-inkey", "file:push.key", "-certfile", "file:push.pem", "-out", "file:push.p12",
                    "-passout", "pass:pass phräse",
                ])
            let certificate = try Self.open(openssl, "push.p12")
            #expect(certificate.topics == ["com.example.app", "com.example.app.voip"])
            try certificate.check(nowS: Self.now)
            #expect(throws: ClientCertificateError.wrongPassphrase) {
                _ = try Self.open(openssl, "push.p12", passphrase: Array("another".utf8))
            }
            #expect(throws: ClientCertificateError.needsPassphrase) {
                _ = try Self.open(openssl, "push.p12", passphrase: [])
            }
        }
    }

    @Test func acceptsPKCS12WithoutAPassphrase() throws {
        try with { openssl in
            try openssl.makeCertificate("push")
            try openssl.run(
                "pkcs12", "-export", "-in", "file:push.pem", "-inkey", "file:push.key", "-out", "file:push.p12", "-passout",
                "pass:")
            _ = try Self.open(openssl, "push.p12", passphrase: [])
            #expect(throws: ClientCertificateError.wrongPassphrase) { _ = try Self.open(openssl, "push.p12") }
        }
    }

    @Test func reportsWhyPKCS12IsInvalid() throws {
        try with { openssl in
            try openssl.makeCertificate("push")
            try openssl.makeCertificate("other")
            let out = ["-passout", "pass:pass phräse", "-out", "file:push.p12"]
            try openssl.run(["pkcs12", "-export", "-nokeys", "-in", "file:push.pem"] + out)
            #expect(throws: ClientCertificateError.noKey) { _ = try Self.open(openssl, "push.p12") }
            try openssl.run(["pkcs12", "-export", "-nocerts", "-inkey", "file:push.key", "-in", "file:push.key"] + out)
            #expect(throws: ClientCertificateError.noCertificate) { _ = try Self.open(openssl, "push.p12") }
            let pem = try openssl.read("push.pem")
            for file in [[], pem, [0x30, 0x03, 0x02, 0x01, 0x03], [UInt8](repeating: 0x30, count: 5000)] {
                #expect(throws: ClientCertificateError.notPKCS12) {
                    _ = try ClientCertificate(pkcs12: file.span, passphrase: Self.passphrase.span)
                }
            }
        }
    }

    @Test func refusesDamagedPKCS12() throws {
        try with { openssl in
            try openssl.makeCertificate("push")
            try openssl.run(
                "pkcs12", "-export", "-macalg", "sha256", "-in", "file:push.pem", "-inkey", "file:push.key", "-out",
                "file:push.p12",
                "-passout", "pass:pass phräse", "-iter", "1")
            let file = try openssl.read("push.p12")
            var accepted = 0
            for index in stride(from: 0, to: file.count, by: 7) {
                var damaged = file
                damaged[index] ^= 0x55
                if (try? ClientCertificate(pkcs12: damaged.span, passphrase: Self.passphrase.span)) != nil { accepted += 1 }
                let short = Array(file[..<index])
                #expect(throws: ClientCertificateError.self) {
                    _ = try ClientCertificate(pkcs12: short.span, passphrase: Self.passphrase.span)
                }
            }
            #expect(accepted == 0)
        }
    }

    @Test func datesAreChecked() throws {
        try with { openssl in
            try openssl.makeCertificate("old", from: "20200101000000Z", to: "20260130000000Z")
            let old = try Self.read(openssl, "old.pem", "old.key")
            #expect(throws: ClientCertificateError.expired(on: "2026-01-30")) { try old.check(nowS: Self.now) }
            try old.check(nowS: Self.now - 3 * 86_400)
            #expect(throws: ClientCertificateError.notYetValid(from: "2020-01-01")) { try old.check(nowS: 1_500_000_000) }
            #expect(ClientCertificateError.expired(on: "2026-01-30").description.contains("2026-01-30"))
        }
    }

    @Test func aCertificateWithoutTopicsListsNone() throws {
        try with { openssl in
            try openssl.makeCertificate("plain", userID: nil)
            #expect(try Self.read(openssl, "plain.pem", "plain.key").topics == [])
        }
    }

    @Test func userIDsAreTheTopicsWithoutAList() throws {
        let files = try ClientCertificateFiles(userIDs: ["com.example.first", "com.example.app"], marks: ["1.2.3.4"])
        let identity = try files.identity()
        #expect(identity.topics == ["com.example.first", "com.example.app"])
        #expect(identity.extensions.contains("1.2.3.4") && !identity.extensions.contains("1.2.3"))
    }

    static func topics(_ der: [UInt8]) -> [String] { TopicList.read(der.span) }

    @Test func parsesTopicLists() {
        let one: [UInt8] = [0x30, 0x0b, 0x0c, 0x03, 0x61, 0x2e, 0x62, 0x30, 0x04, 0x0c, 0x02, 0x68, 0x69]
        #expect(Self.topics(one) == ["a.b"])
        // The same with a length in two bytes.
        #expect(Self.topics([0x30, 0x81, 0x0b] + one[2...]) == ["a.b"])
        #expect(Self.topics([0x30, 0x00]) == [])
    }

    @Test func invalidTopicListsAreEmpty() {
        let one: [UInt8] = [0x30, 0x0b, 0x0c, 0x03, 0x61, 0x2e, 0x62, 0x30, 0x04, 0x0c, 0x02, 0x68, 0x69]
        let others: [[UInt8]] = [
            [], [0x30], [0x31, 0x00], [0x30, 0x80], [0x30, 0x84, 0, 0, 0, 0], [0x30, 0x83, 0xff, 0xff, 0xff],
            [0x30, 0x02, 0x0c, 0x05],
            one + [0], Array(one.dropLast()),
        ]
        for other in others { #expect(Self.topics(other) == [], "\(other)") }
        for index in one.indices {
            for bit in 0..<8 {
                var changed = one
                changed[index] ^= 1 << bit
                _ = Self.topics(changed)
            }
        }
    }

    @Test func isShownToServersThatRequestIt() throws {
        try with { openssl in
            try openssl.makeCertificate("push")
            let authority = try openssl.read("push.pem")
            let identity = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
            func pair(_ certificate: ClientCertificate?) throws -> TLSSessionTests.Pair {
                try TLSSessionTests.Pair(
                    .server(
                        certificateChain: identity.certificate, privateKey: identity.privateKey.span, alpn: ["h2"],
                        clientAuthorities: authority),
                    .client(trust: .authorities(identity.certificate), alpn: ["h2"], certificate: certificate), host: "localhost")
            }
            var shown = try pair(Self.read(openssl, "push.pem", "push.key"))
            shown.run()
            #expect(shown.server.state == .established)
            var none = try pair(nil)
            none.run()
            #expect(none.server.state != .established)
            // A key from PKCS#12, read in another OpenSSL context, can sign too.
            try openssl.run(
                "pkcs12", "-export", "-legacy", "-in", "file:push.pem", "-inkey", "file:push.key", "-out", "file:push.p12",
                "-passout", "pass:pass phräse")
            var unpacked = try pair(Self.open(openssl, "push.p12"))
            unpacked.run()
            #expect(unpacked.server.state == .established)
        }
    }
}
