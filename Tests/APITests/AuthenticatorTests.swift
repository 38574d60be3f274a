import Broker
import HTTP1
import HTTPServer
import Ledger
import Linux
import Testing

@testable import API

@Suite struct AuthenticatorTests {
    let mint: TokenMint
    init() throws { mint = try TokenMint() }

    // MARK: Requests

    private func outcome(_ headers: [(String, String)]) async throws -> Result<Principal, BrokerError> {
        let authenticator = try mint.authenticator(.hs256)
        let request = HTTPRequest(method: .get, target: "/", headers: headers.map { (name: $0.0, value: $0.1) })
        do {
            return .success(try await authenticator.principal(request) { UInt64(TokenMint.nowS) * 1_000 })
        } catch let error as BrokerError { return .failure(error) }
    }

    @Test func bearerIsRead() async throws {
        let token = try mint.token(.hs256)
        for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
            #expect(try await outcome([("Authorization", "\(scheme) \(token)")]).user == "ann")
        }
        for header in [
            "", "Bearer", "Basic \(token)", token, "Bearer\t\(token)", "Bearer:\(token)", "Token \(token)", "XBearer \(token)",
        ] {
            #expect(try await outcome([("Authorization", header)]).error == .noJWT, "\(header)")
        }
        #expect(try await outcome([]).error == .noJWT)
        #expect(
            try await outcome([("Proxy-Authorization", "Bearer \(token)"), ("Cookie", "access_token=\(token)")]).error == .noJWT)
        for header in ["Bearer  \(token)", "Bearer \(token) \(token)", "Bearer \(token),\(token)", "Bearer \"\(token)\""] {
            #expect(try await outcome([("Authorization", header)]).error == .invalidJWT(.malformed), "\(header)")
        }
    }

    // MARK: Answers

    private static let refusals: [InvalidJWT] = [
        .tooLong(limit: 8_192), .malformed, .wrongAlgorithm(expected: "ES256"), .hasCriticalHeader, .namesNoKey, .unknownKey,
        .badSignature,
        .malformedClaims("line 1, column 1: a digit is expected here"), .repeated("sub"), .noExpiry, .badTime("exp"),
        .notYet("nbf"), .wrongIssuer, .wrongAudience, .unexpectedAudience,
        .badUser(claim: "sub"), .badScope,
    ]

    private func answer(_ error: BrokerError) -> (status: UInt16, challenge: [String], body: String) {
        let response = HTTPResponse(error)
        return (
            response.status, response.headers.filter { $0.name == "WWW-Authenticate" }.map(\.value),
            String(decoding: response.body, as: UTF8.self)
        )
    }

    @Test(arguments: refusals.map { BrokerError.invalidJWT($0) } + [.jwtExpired])
    func refusalsHaveAChallenge(_ error: BrokerError) throws {
        let (status, challenge, body) = answer(error)
        #expect(status == 401 && error.ledgerCause?.rawValue == "unauthorized" && error.retryAfter == nil)
        #expect(
            error.code == (error == .jwtExpired ? "jwt_expired" : "invalid_jwt") && body.contains(#""code":"\#(error.code)""#))
        #expect(challenge == [#"Bearer error="invalid_token", error_description="\#(error.detail)""#])
        // The characters of an error_description (RFC 6750 section 3). A quote or a line break could inject another header.
        #expect(error.detail.utf8.allSatisfy { (0x20...0x7e).contains($0) && $0 != 0x22 && $0 != 0x5c })
        // Two sentences: what happened and what to do.
        #expect(error.detail.hasSuffix(".") && error.detail.split(separator: ". ").count >= 2)
    }

    @Test func missingJWTIsChallenged() throws {
        let (status, challenge, body) = answer(.noJWT)
        #expect(status == 401 && challenge == ["Bearer"] && body.contains(#""code":"no_jwt""#))
        #expect(BrokerError.noJWT.ledgerCause?.rawValue == "unauthorized")
    }

    /// A client that gets 401 asks its user to log in, so a shortage of the broker must be another answer.
    @Test func unavailableKeysAreNoRefusal() throws {
        let (status, challenge, body) = answer(.keysUnavailable)
        #expect(status == 503 && challenge.isEmpty && body.contains(#""code":"jwt_keys_unavailable""#))
        #expect(BrokerError.keysUnavailable.retryAfter != nil)
        #expect(BrokerError.keysUnavailable.ledgerCause?.rawValue == "unavailable")
    }

    @Test func audiencesAreOffWithoutAKey() throws {
        let (status, challenge, body) = answer(.audiencesOff)
        #expect(status == 404 && challenge.isEmpty && body.contains(#""code":"audiences_off""#))
        #expect(BrokerError.audiencesOff.ledgerCause == nil)
    }

    // MARK: Rotation

    @Test func reloadReplacesKeys() throws {
        let other = try TokenMint()
        let path = try mint.write("set", #"{"keys":[\#(try mint.jwk(.edDSA))]}"#)
        let authenticator = try mint.authenticator(.edDSA, .keySet(path: path))
        let (old, new) = (try mint.token(.edDSA), try other.token(.edDSA))
        #expect(authenticator.outcome(old).user == "ann" && authenticator.outcome(new).user == nil)
        try mint.write("set", #"{"keys":[\#(try other.jwk(.edDSA))]}"#)
        #expect(authenticator.outcome(new).user == nil, "keys change only at a reload")
        try authenticator.reload()
        #expect(authenticator.outcome(old).error == .invalidJWT(.badSignature) && authenticator.outcome(new).user == "ann")
        for bad in ["", "{}", #"{"keys":[]}"#, #"{"keys":[\#(try mint.jwk(.edDSA, #","d":"AA""#))]}"#] {
            try mint.write("set", bad)
            #expect(throws: JSONWebKeyError.self) { try authenticator.reload() }
            #expect(authenticator.outcome(old).user == nil && authenticator.outcome(new).user == "ann", "\(bad)")
        }
        try File.remove(path)
        #expect(throws: JSONWebKeyError.self) { try authenticator.reload() }
        #expect(authenticator.outcome(new).user == "ann")
    }

    /// Sockets are closed if a reload removes a key, and only then.
    @Test(arguments: JSONWebAlgorithm.allCases) func reloadReportsRemovedKeys(_ algorithm: JSONWebAlgorithm) throws {
        let other = try TokenMint()
        let (first, second) = (try mint.jwk(algorithm, #","kid":"1""#), try other.jwk(algorithm, #","kid":"2""#))
        let path = try mint.write("set", #"{"keys":[\#(first)]}"#)
        let authenticator = try mint.authenticator(algorithm, .keySet(path: path))
        var counts: [Int] = []
        func reload(_ keys: String...) throws -> Bool {
            try mint.write("set", #"{"keys":[\#(keys.joined(separator: ","))]}"#)
            let (removed, before) = try authenticator.reload()
            counts = [removed, before]
            return removed > 0
        }
        #expect(try !reload(first) && !reload(second, first) && authenticator.withdrawals == 0)
        #expect(try reload(second) && counts == [1, 2])
        // Another key with the same id.
        #expect(try reload(other.jwk(algorithm, #","kid":"1""#)) && reload(first) && !reload(first))
        #expect(authenticator.withdrawals == 3)
    }

    /// A key that is in every set is valid at every moment.
    @Test func keptKeyWorksDuringReloads() async throws {
        let others = [try TokenMint(), try TokenMint()]
        let stays = try mint.jwk(.hs256, #","kid":"stays""#)
        func writeSet(_ number: Int) throws {
            try mint.write("set", #"{"keys":[\#(stays),\#(try others[number % 2].jwk(.hs256, #","kid":"goes""#))]}"#)
        }
        try writeSet(0)
        let authenticator = try mint.authenticator(.hs256, .keySet(path: mint.folder + "/set"))
        let token = try mint.token(.hs256, header: #"{"alg":"HS256","kid":"stays"}"#)
        let going = try others.map { try $0.token(.hs256, header: #"{"alg":"HS256","kid":"goes"}"#) }
        try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    var count = 0
                    repeat {
                        guard authenticator.outcome(token).user == "ann" else { throw BrokerError.notAMember }
                        for other in going { _ = authenticator.outcome(other) }
                        count += 1
                        await Task.yield()
                    } while !Task.isCancelled
                    return count
                }
            }
            for number in 1...50 {
                await Task.yield()
                try writeSet(number)
                try authenticator.reload()
                #expect(authenticator.outcome(going[number % 2]).user == "ann")
                #expect(authenticator.outcome(going[(number + 1) % 2]).error == .invalidJWT(.badSignature))
            }
            group.cancelAll()
            for try await count in group { #expect(count > 0) }
        }
    }
}
