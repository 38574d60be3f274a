import Linux
import Sealing
import Sodium
import Testing
import Vocabulary

@testable import API

@Suite struct WebhookSecretsTests {
    private static let body = Array(#"{"trigger":"call_initiated"}"#.utf8)

    private func signature(_ secret: String, _ body: [UInt8] = body) -> String {
        Hex.encode(HMACSHA256.code(body.span, key: Array(secret.utf8).span).span)
    }

    private func haveSigned(_ secrets: WebhookSecrets, _ signature: String, _ body: [UInt8] = body) -> Bool {
        let text = Array(signature.utf8)
        return secrets.haveSigned(body.span, text.span)
    }

    private func secret(_ text: String) throws -> Secret {
        let bytes = Array(text.utf8)
        return try WebhookSecrets.secret(bytes.span)
    }

    /// Runs `use` with a file that contains `text`.
    private func withFile(_ text: String, mode: UInt32 = 0o600, _ use: (String) throws -> Void) throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let path = folder + "/secrets"
        let bytes = Array(text.utf8)
        try File.write(path, bytes.span, mode: mode)
        try use(path)
    }

    // MARK: Signatures

    // Promise: webhook-signature
    @Test func onlyTheExactSignatureIsAccepted() throws {
        let secrets = try WebhookSecrets(own: secret("a secret of the dashboard"), path: nil)
        let good = signature("a secret of the dashboard")
        #expect(haveSigned(secrets, good))
        let wrong = [
            "", good.uppercased(), String(good.dropLast()), String(good.dropLast(32)), good + "0", good + good, " " + good,
            good + " ", "sha256=" + good, String(repeating: "0", count: 64), String(good.reversed()),
            signature("a secret of the dashboarD"), signature(""), signature("a secret of the dashboard", []),
        ]
        for signature in wrong { #expect(!haveSigned(secrets, signature), "\(signature)") }
        // Each digit changed.
        for index in 0..<64 {
            var text = Array(good.utf8)
            text[index] = text[index] == UInt8(ascii: "0") ? UInt8(ascii: "1") : UInt8(ascii: "0")
            #expect(!haveSigned(secrets, String(decoding: text, as: UTF8.self)))
        }
        // Each byte of the body changed; then a byte added or removed.
        for index in Self.body.indices {
            var changed = Self.body
            changed[index] ^= 1
            #expect(!haveSigned(secrets, good, changed))
        }
        #expect(!haveSigned(secrets, good, Self.body + [0x0a]) && !haveSigned(secrets, good, Array(Self.body.dropLast())))
    }

    /// RFC 4231, test cases 1 and 2.
    @Test func signaturesMatchTheStandard() throws {
        let first = try WebhookSecrets(own: Secret(copying: [UInt8](repeating: 0x0b, count: 20).span), path: nil)
        #expect(
            haveSigned(first, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7", Array("Hi There".utf8)))
        let second = try WebhookSecrets(own: Secret(copying: Array("Jefe".utf8).span), path: nil)
        #expect(
            haveSigned(
                second, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                Array("what do ya want for nothing?".utf8)))
    }

    // MARK: Several

    @Test func severalSecretsAreValidUntilRemoved() throws {
        let (old, new, own) = ("the old secret, at first", "the new secret, to come", "the secret of no file")
        try withFile("\(old)\n") { path in
            let secrets = try WebhookSecrets(own: secret(own), path: path)
            #expect(secrets.count == 2)
            #expect(haveSigned(secrets, signature(old)) && haveSigned(secrets, signature(own)))
            #expect(!haveSigned(secrets, signature(new)))
            let both = Array("\(old)\n\n\(new)".utf8)
            try File.replaceDurably(path, both.span, mode: 0o600)
            #expect(!haveSigned(secrets, signature(new)))
            try secrets.reload()
            for secret in [old, new, own] { #expect(haveSigned(secrets, signature(secret)), "\(secret)") }
            let last = Array("\(new)\n".utf8)
            try File.replaceDurably(path, last.span, mode: 0o600)
            try secrets.reload()
            #expect(!haveSigned(secrets, signature(old)) && haveSigned(secrets, signature(new)))
            // An invalid file changes nothing.
            for text in ["", "\n\n", " short\n", "\(old)\n \n"] {
                let bytes = Array(text.utf8)
                try File.replaceDurably(path, bytes.span, mode: 0o600)
                #expect(throws: WebhookSecretsError.self) { try secrets.reload() }
                #expect(secrets.count == 2 && haveSigned(secrets, signature(new)) && !haveSigned(secrets, signature(old)))
            }
        }
    }

    // MARK: Files

    private func error(_ text: String, mode: UInt32 = 0o600) throws -> WebhookSecretsError? {
        var found: WebhookSecretsError?
        try withFile(text, mode: mode) { path in
            do throws(WebhookSecretsError) { _ = try WebhookSecrets(own: nil, path: path) } catch { found = error }
        }
        return found
    }

    @Test func filesWithInvalidSecretsAreRefused() throws {
        let good = String(repeating: "s", count: 16)
        let long = String(repeating: "ü", count: 64)
        for text in ["x", good, good + "\n", "\n" + good, good + "\n" + long + "\n", "a b c d e f g h i j"] {
            #expect(try error(text) == nil, "\(text)")
        }
        #expect(try error(String(repeating: good + "\n", count: 8)) == nil)
        #expect(try error(String(repeating: good + "\n", count: 9)) == .tooMany)
        #expect(try error("") == WebhookSecretsError.none)
        #expect(try error("\n") == WebhookSecretsError.none)
        #expect(try error(good + "\n" + String(repeating: "s", count: 129)) == .line(2, .length))
        for text in [good + "\r\n", good + " ", " " + good, good + "\t", good + "\0"] {
            #expect(try error(text) == .line(1, .notText), "\(text)")
        }
        #expect(try error(String(repeating: "\n", count: 65_537)) != nil)
    }

    @Test func guessableSecretsAreCounted() throws {
        let good = String(repeating: "s", count: 16)
        try withFile("\(good)\n\(good.dropLast())\n") { path in
            let some = try WebhookSecrets(own: secret("short"), path: path)
            let none = try WebhookSecrets(own: secret(good), path: nil)
            #expect(some.guessable == 2 && none.guessable == 0)
        }
    }

    @Test func readableFilesAreRefused() throws {
        let good = String(repeating: "s", count: 32)
        for mode in [UInt32(0o640), 0o604, 0o644] {
            guard case .file(.exposed) = try error(good, mode: mode) else {
                Issue.record("accepted with mode \(String(mode, radix: 8))")
                continue
            }
        }
        #expect(try error(good, mode: 0o400) == nil)
        #expect(throws: WebhookSecretsError.self) { try WebhookSecrets(own: nil, path: "/nowhere/secrets") }
    }

    @Test func errorsContainNoSecrets() throws {
        let secret = "/Tr0ub4dor/of a passphrase"
        for error in [try error(secret + "\r"), try error("Tr0ub4dor "), try error(secret, mode: 0o644)] {
            let text = "\(try #require(error))"
            #expect(!text.contains("Tr0ub4dor") && !text.contains("\n"))
        }
        do {
            _ = try WebhookSecrets(own: nil, path: secret)
            Issue.record("there is such a file")
        } catch { #expect(!"\(error)".contains("Tr0ub4dor")) }
    }
}
