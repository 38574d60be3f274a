import Linux
import Testing
import Vocabulary

@testable import Courier

/// `docs/delivery.md` says what the code does: its table of answers is rendered from the enum.
@Suite struct DocumentTests {
    @Test func theTableOfReactionsIsTheCodes() throws {
        let table = Self.table()
        #expect(
            try Self.text("delivery.md").contains("\n\n" + table + "\n"),
            "docs/delivery.md must hold exactly this table:\n\(table)")
    }

    /// And `docs/why-no-push.md` says of each reason what `mayfly apns explain` says.
    @Test func theTableOfReasonsIsTheCodes() throws {
        let rows = APNsReason.allCases.map { reason in
            let said = reason.explanation
            let status = reason.status.map { "\($0)" } ?? "-"
            return "| \(status) | `\(reason.rawValue)` | \(said.means) | \(said.fault.words) | \(reason.does) | \(said.remedy) |"
        }
        let table = (["| status | reason | means | whose fault | Mayfly | what to do |", "|---|---|---|---|---|---|"] + rows)
            .joined(separator: "\n")
        #expect(
            try Self.text("why-no-push.md").contains("\n\n" + table + "\n"),
            "docs/why-no-push.md must hold exactly this table:\n\(table)")
    }

    /// Each is one clause that goes into a row, and none says the same as another.
    @Test func explanationsAreClausesOfTheirOwn() {
        var seen: Set<String> = []
        for reason in APNsReason.allCases where reason != .badEnvironmentKeyInToken {
            let said = reason.explanation
            for text in [said.means, said.remedy, reason.does] {
                #expect(!text.isEmpty && !text.contains("|") && !text.contains("\n") && text.last != ".", "\(reason.rawValue)")
            }
            #expect(seen.insert(said.means).inserted, "\(reason.rawValue)")
        }
    }

    private static func text(_ name: String) throws -> String {
        let folder = "\(#filePath)".split(separator: "/").dropLast(3).map { "/\($0)" }.joined() + "/docs/"
        return String(decoding: try File.read(folder + name, limit: 131_072), as: UTF8.self)
    }

    private static func table() -> String {
        var rows = ["| status | reason | what follows |", "|---|---|---|"]
        for reason in APNsReason.allCases where reason != .other {
            // The courier's own reasons can't come from Apple.
            guard let status = reason.status else { continue }
            let answer = Answer(status: status, body: Array(#"{"reason":"\#(reason.rawValue)"}"#.utf8))
            guard answer.reason == reason else { continue }
            rows.append("| \(status) | `\(reason.rawValue)` | \(answer.reaction.words) |")
        }
        for status in [400, 403, 404, 405, 410, 413, 429, 500, 503] {
            rows.append("| \(status) | any other, or none | \(Answer(status: status, body: []).reaction.words) |")
        }
        return rows.joined(separator: "\n") + "\n"
    }
}
