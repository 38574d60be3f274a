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
            // The courier's own reasons can't come from Apple.
            guard let status = reason.status else { continue }
            let answer = Answer(status: status, body: Array(#"{"reason":"\#(reason.rawValue)"}"#.utf8))
            guard answer.reason == reason else { continue }
            rows.append("| \(status) | `\(reason.rawValue)` | \(words(answer.reaction)) |")
        }
        for status in [400, 403, 404, 405, 410, 413, 429, 500, 503] {
            rows.append("| \(status) | any other, or none | \(words(Answer(status: status, body: []).reaction)) |")
        }
        return rows.joined(separator: "\n") + "\n"
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
