import TestCertificates
import Testing

@testable import TLS

@Suite struct RS256Tests {
    private static let message = Array("a message".utf8)

    private func keys(_ options: String..., algorithm: String = "RSA") throws -> (private: [UInt8], public: [UInt8]) {
        let openssl = try OpenSSLProgram()
        defer { openssl.end() }
        try openssl.run(
            ["genpkey", "-algorithm", algorithm] + options.flatMap { ["-pkeyopt", $0] } + ["-out", "file:key"])
        try openssl.run("pkey", "-in", "file:key", "-pubout", "-out", "file:public")
        return (try openssl.read("key"), try openssl.read("public"))
    }

    private func fault(_ pem: [UInt8]) -> RS256.KeyFault? {
        do throws(RS256.KeyFault) {
            _ = try RS256.PublicKey(pem: pem.span)
            return nil
        } catch { return error }
    }

    private func fault(private pem: [UInt8]) -> RS256.KeyFault? {
        do throws(RS256.KeyFault) {
            _ = try RS256.PrivateKey(pem: pem.span)
            return nil
        } catch { return error }
    }

    /// `#expect` can't capture a span.
    private func isValid(_ key: RS256.PublicKey, _ signature: [UInt8], _ message: [UInt8] = RS256Tests.message) -> Bool {
        key.isValid(signature.span, for: message.span)
    }

    @Test func signaturesVerify() throws {
        let (made, other) = (try keys("rsa_keygen_bits:2048"), try keys("rsa_keygen_bits:2056"))
        let signature = try RS256.PrivateKey(pem: made.private.span).sign(Self.message.span)
        let key = try RS256.PublicKey(pem: made.public.span)
        #expect(signature.count == 256 && isValid(key, signature))
        #expect(!isValid(key, signature, Self.message + [0]))
        for index in [0, 1, 128, 255] {
            var changed = signature
            changed[index] ^= 1
            #expect(!isValid(key, changed))
        }
        for bad in [[], Array(signature.dropLast()), signature + [0], [0] + signature, [UInt8](repeating: 0, count: 256)] {
            #expect(!isValid(key, bad))
        }
        let foreign = try RS256.PublicKey(pem: other.public.span)
        #expect(!isValid(foreign, signature))
        let same = try RS256.PublicKey(pem: made.public.span)
        #expect(key == same && key != foreign)
    }

    /// By another implementation. With PSS, or with another hash, the key's signature is none of RS256.
    @Test func onlyPKCS1WithSHA256Verifies() throws {
        let openssl = try OpenSSLProgram()
        defer { openssl.end() }
        try openssl.run("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "file:key")
        try openssl.run("pkey", "-in", "file:key", "-pubout", "-out", "file:public")
        // The certificate's own text serves as a message.
        func signed(_ options: String...) throws -> [UInt8] {
            try openssl.run(["dgst"] + options + ["-sign", "file:key", "-out", "file:signature", "file:public"])
            return try openssl.read("signature")
        }
        let message = try openssl.read("public")
        let key = try RS256.PublicKey(pem: message.span)
        let (good, pss, sha1) = (
            try signed("-sha256"), try signed("-sha256", "-sigopt", "rsa_padding_mode:pss"), try signed("-sha1")
        )
        let sha512 = try signed("-sha512")
        #expect(isValid(key, good, message))
        for bad in [pss, sha1, sha512] { #expect(!isValid(key, bad, message)) }
    }

    @Test(arguments: [1_024, 2_040]) func otherSizesAreRefused(_ bits: Int) throws {
        let made = try keys("rsa_keygen_bits:\(bits)")
        #expect(fault(made.public) == .size(bits: bits) && fault(private: made.private) == .size(bits: bits))
    }

    @Test(arguments: ["3", "4294967297"]) func otherExponentsAreRefused(_ exponent: String) throws {
        let made = try keys("rsa_keygen_bits:2048", "rsa_keygen_pubexp:\(exponent)")
        #expect(fault(made.public) == .exponent && fault(private: made.private) == .exponent)
    }

    @Test func otherKeysAreRefused() throws {
        let pss = try keys("rsa_keygen_bits:2048", algorithm: "RSA-PSS")
        let curve = try keys("ec_paramgen_curve:P-256", algorithm: "EC")
        for pem in [pss.public, curve.public, [], Array("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".utf8)] {
            #expect(fault(pem) == .noKey)
        }
        #expect(fault(private: pss.private) == .noKey && fault(private: pss.public) == .noKey)
    }
}
