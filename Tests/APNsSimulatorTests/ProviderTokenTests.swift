import TLS
import Testing

@testable import APNsSimulator

private let now: UInt64 = 1_800_000_000

@Suite struct ProviderTokenTests {
    private let provider: TestProvider
    private let verifier: ProviderTokenVerifier

    init() throws {
        provider = try TestProvider()
        verifier = ProviderTokenVerifier([try provider.providerKey()], environment: .sandbox)
    }

    private func outcome(_ token: String, at time: UInt64 = now) -> Reason? {
        var verifier = verifier
        do throws(Rejection) {
            _ = try verifier.verify(Array("bearer \(token)".utf8).span, now: time)
            return nil
        } catch {
            return error.reason
        }
    }

    @Test(
        arguments: [
            (0, nil), (1, .invalidProviderToken), (-1, nil), (-3600, nil), (-3601, .expiredProviderToken),
            (-86_400, .expiredProviderToken),
        ] as [(Int, Reason?)])
    func ageIsLimited(seconds: Int, expected: Reason?) throws {
        #expect(outcome(try provider.token(iat: UInt64(Int(now) + seconds))) == expected)
    }

    @Test(arguments: [
        #"{"alg":"ES256"}"#, #"{"kid":"KEY0000001"}"#, #"{"alg":"none","kid":"KEY0000001"}"#,
        #"{"alg":"HS256","kid":"KEY0000001"}"#,
        #"{"alg":"ES256","kid":"KEY0000002"}"#, #"{"alg":"ES256","kid":1}"#, "[]", "", "{",
        #"{"alg":"none","alg":"ES256","kid":"KEY0000001"}"#,
    ])
    func invalidHeadersAreRefused(header: String) throws {
        #expect(outcome(try provider.token(iat: now, header: header)) == .invalidProviderToken)
    }

    @Test(arguments: [
        #"{"iss":"TEAM000002","iat":1800000000}"#, #"{"iat":1800000000}"#, #"{"iss":"TEAM000001"}"#,
        #"{"iss":"TEAM000001","iat":"1800000000"}"#, #"{"iss":"TEAM000001","iat":-5}"#,
        #"{"iss":"TEAM000001","iat":1800000000.5}"#,
        #"{"iss":"TEAM000001","iat":1800000000000}"#, "not JSON",
    ])
    func invalidClaimsAreRefused(claims: String) throws {
        #expect(outcome(try provider.token(iat: now, claims: claims)) == .invalidProviderToken)
    }

    @Test func otherMembersAreIgnored() throws {
        let token = try provider.token(
            iat: now, header: #"{"typ":"JWT","alg":"ES256","kid":"KEY0000001"}"#,
            claims: #"{"aud":"x","iss":"TEAM000001","iat":1800000000,"exp":1}"#)
        #expect(outcome(token) == nil)
    }

    @Test func signatureOfAnotherKeyIsRefused() throws {
        #expect(outcome(try TestProvider().token(iat: now)) == .invalidProviderToken)
    }

    @Test func alteredTokensAreRefused() throws {
        let token = try provider.token(iat: now)
        for index in token.indices {
            var altered = token
            altered.replaceSubrange(index...index, with: token[index] == "A" ? "B" : "A")
            #expect(outcome(altered) == .invalidProviderToken)
        }
    }

    @Test(arguments: ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "....", "=.=.="])
    func malformedTokensAreRefused(token: String) {
        #expect(outcome(token) == .invalidProviderToken)
    }

    @Test func incompleteTokensAreRefused() throws {
        let token = try provider.token(iat: now)
        for altered in [
            token + ".", token + "AA", String(token.dropLast()), String(token.dropLast(2)), "." + token, " " + token, token + "=",
        ] {
            #expect(outcome(altered) == .invalidProviderToken)
        }
    }

    @Test func derSignatureIsRefused() throws {
        // DER of the same numbers has 70 to 72 bytes. Only R || S is valid.
        let parts = try provider.token(iat: now).split(separator: ".")
        let der: [UInt8] =
            [0x30, 0x44, 0x02, 0x20] + [UInt8](repeating: 1, count: 32) + [0x02, 0x20] + [UInt8](repeating: 1, count: 32)
        #expect(outcome("\(parts[0]).\(parts[1]).\(TestProvider.base64URL(der))") == .invalidProviderToken)
    }

    @Test func cachedTokensExpire() throws {
        var verifier = verifier
        let header = Array("Bearer \(try provider.token(iat: now))".utf8)
        #expect(try verifier.verify(header.span, now: now).issuedAt == now)
        #expect(throws: Rejection(.expiredProviderToken)) { try verifier.verify(header.span, now: now + 3601) }
    }

    @Test func frequentTokenChangesAreRefused() throws {
        var rules = Rules(verifier: verifier)
        var session = Rules.Session()
        func send(_ token: String, at time: UInt64) -> Reason? {
            let draft = Draft(fields: [("authorization", "bearer " + token), ("apns-topic", "org.example.app")])
            do throws(Rejection) {
                _ = try rules.check(draft.request, on: &session, now: time)
                return nil
            } catch {
                return error.reason
            }
        }
        let first = try provider.token(iat: now)
        #expect(send(first, at: now) == nil)
        #expect(send(try provider.token(iat: now), at: now) == .tooManyProviderTokenUpdates)
        #expect(send(try provider.token(iat: now + 1199), at: now + 1199) == .tooManyProviderTokenUpdates)
        #expect(send(first, at: now + 1199) == nil)
        let second = try provider.token(iat: now + 1200)
        #expect(send(second, at: now + 1200) == nil)
        #expect(send(first, at: now + 1200) == .tooManyProviderTokenUpdates)
        session = Rules.Session()
        #expect(send(first, at: now + 1200) == nil)
    }
}
