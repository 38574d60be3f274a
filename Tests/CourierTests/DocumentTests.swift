import Linux
import Testing

@testable import Courier

/// `docs/delivery.md` says what the code does: its table of answers is rendered from the enum.
@Suite struct DocumentTests {
    @Test func theTableOfReactionsIsTheCodes() throws {
        let document = "\(#filePath)".split(separator: "/").dropLast(3).map { "/\($0)" }.joined() + "/docs/delivery.md"
        let text = String(decoding: try File.read(document, limit: 65_536), as: UTF8.self)
        let table = Self.table()
        #expect(text.contains("\n\n" + table + "\n"), "docs/delivery.md must hold exactly this table:\n\(table)")
    }

    private static func table() -> String {
        var rows = ["| status | reason | what follows |", "|---|---|---|"]
        for reason in Reason.allCases where reason != .other {
            let answer = Answer(status: 400, body: Array(#"{"reason":"\#(reason.rawValue)"}"#.utf8))
            // The courier's own reasons can't come from Apple.
            guard answer.reason == reason else { continue }
            rows.append("| \(status(reason)) | `\(reason.rawValue)` | \(words(answer.reaction)) |")
        }
        for status in [400, 403, 404, 405, 410, 413, 429, 500, 503] {
            rows.append("| \(status) | any other, or none | \(words(Answer(status: status, body: []).reaction)) |")
        }
        return rows.joined(separator: "\n") + "\n"
    }

    /// With which status Apple gives a reason ("Handling notification responses from APNs").
    private static func status(_ reason: Reason) -> Int {
        switch reason {
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic, .deviceTokenNotForTopic,
            .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken, .missingTopic, .payloadEmpty,
            .topicDisallowed:
            400
        case .badCertificate, .badCertificateEnvironment, .expiredProviderToken, .forbidden, .invalidProviderToken,
            .missingProviderToken, .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .expiredToken, .unregistered: 410
        case .payloadTooLarge: 413
        case .tooManyProviderTokenUpdates, .tooManyRequests: 429
        case .internalServerError: 500
        case .serviceUnavailable, .shutdown: 503
        case .unreachable, .unknown, .late, .stopped, .revoked, .other: 0
        }
    }

    private static func words(_ reaction: Reaction) -> String {
        switch reaction {
        case .purge: "the token is purged, unless most of its topic are refused"
        case .purgeIfOlder: "the token is purged if it was sealed before Apple's timestamp"
        case .configuration: "an alarm; the token is kept, no further attempt"
        case .drop: "the token is kept, no further attempt"
        case .retry: "again after a wait"
        case .reconnect: "again on a new connection"
        case .renewProviderToken: "again with a new provider token on a new connection, once; then an alarm"
        case .reconnectOnce: "again on a new connection, once; then an alarm"
        case .holdToken: "again after a wait, in which nothing goes to this token"
        }
    }
}
