import TestCertificates
import Testing

@testable import TLS

/// The expiries of chains and authorities, made by Debian's `openssl`.
@Suite struct CertificateExpiryTests {
    // 2030-01-01, 2031-01-01 and 2120-01-01, 00:00 UTC.
    static let (y2030, y2031, y2120): (UInt64, UInt64, UInt64) = (1_893_456_000, 1_924_992_000, 4_733_510_400)

    private func with(_ body: (OpenSSLProgram) throws -> Void) throws {
        let openssl = try OpenSSLProgram()
        defer { openssl.end() }
        try openssl.makeCertificate("early", to: "20300101000000Z")
        try openssl.makeCertificate("middle", to: "20310101000000Z")
        try openssl.makeCertificate("late")
        try body(openssl)
    }

    /// Issues NAME.pem from `issuer`.pem. It expires at the end of `days` from now.
    private func issue(_ openssl: OpenSSLProgram, _ name: String, from issuer: String, days: Int) throws {
        try openssl.run(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "file:\(name).key", "-out",
            "file:\(name).csr", "-subj", "/CN=\(name)")
        try openssl.run(
            "x509", "-req", "-in", "file:\(name).csr", "-CA", "file:\(issuer).pem", "-CAkey", "file:\(issuer).key",
            "-CAcreateserial",
            "-days", "\(days)", "-out", "file:\(name).pem")
    }

    @Test func aSingleCertificate() throws {
        try with { openssl in
            let (early, late) = (try openssl.read("early.pem"), try openssl.read("late.pem"))
            #expect(try CertificateExpiry.ofChain(early.span) == Self.y2030 && CertificateExpiry.ofChain(late.span) == Self.y2120)
            let client = try ClientCertificateTests.read(openssl, "early.pem", "early.key")
            #expect(client.expiryS == Self.y2030)
            #expect(throws: TLSError.badCertificate) { try CertificateExpiry.ofChain([UInt8]().span) }
            #expect(throws: TLSError.badCertificate) { try CertificateExpiry.ofAuthorities(Array("nothing".utf8).span) }
        }
    }

    /// An intermediate that ends first counts. A root that a careless operator appended doesn't: peers have their own.
    @Test func theFirstOfAChain() throws {
        try with { openssl in
            try issue(openssl, "leaf", from: "early", days: 36_000)
            try issue(openssl, "intermediate", from: "early", days: 10)
            let (leaf, intermediate) = (try openssl.read("leaf.pem"), try openssl.read("intermediate.pem"))
            let root = try openssl.read("early.pem")
            let (alone, ten) = (try CertificateExpiry.ofChain(leaf.span), try CertificateExpiry.ofChain(intermediate.span))
            #expect(ten < alone && Self.y2030 < alone)
            #expect(try CertificateExpiry.ofChain((leaf + intermediate).span) == ten)
            #expect(try CertificateExpiry.ofChain((leaf + root).span) == alone)
            // The same in a PKCS#12 file.
            try openssl.run(
                "pkcs12", "-export", "-in", "file:leaf.pem", "-inkey", "file:leaf.key", "-certfile", "file:intermediate.pem",
                "-out",
                "file:leaf.p12", "-passout", "pass:x")
            #expect(try ClientCertificateTests.open(openssl, "leaf.p12", passphrase: Array("x".utf8)).expiryS == ten)
        }
    }

    @Test func theLastOfSeveralAuthorities() throws {
        try with { openssl in
            let (early, middle) = (try openssl.read("early.pem"), try openssl.read("middle.pem"))
            #expect(try CertificateExpiry.ofAuthorities(early.span) == Self.y2030)
            for both in [early + middle, middle + early] { #expect(try CertificateExpiry.ofAuthorities(both.span) == Self.y2031) }
        }
    }

    /// Nodes verify each other by these authorities. A certificate that outlives its own authority is useless then, also beside a newer one.
    @Test func aContextWithTheAuthorityOfItsCertificate() throws {
        try with { openssl in
            try issue(openssl, "leaf", from: "early", days: 36_000)
            let (leaf, key) = (try openssl.read("leaf.pem"), try openssl.read("leaf.key"))
            let (early, middle) = (try openssl.read("early.pem"), try openssl.read("middle.pem"))
            let alone = try TLSContext.server(certificateChain: leaf, privateKey: key.span, alpn: [])
            #expect(try alone.certificateExpiryS == CertificateExpiry.ofChain(leaf.span) && alone.authoritiesExpiryS == nil)
            let node = try TLSContext.server(
                certificateChain: leaf, privateKey: key.span, alpn: [], clientAuthorities: early + middle)
            #expect(node.certificateExpiryS == Self.y2030 && node.authoritiesExpiryS == Self.y2031)
            let other = try TLSContext.server(certificateChain: leaf, privateKey: key.span, alpn: [], clientAuthorities: middle)
            #expect(other.certificateExpiryS == alone.certificateExpiryS && other.authoritiesExpiryS == Self.y2031)
            #expect(try TLSContext.client(trust: .system, alpn: []).authoritiesExpiryS == nil)
        }
    }
}
