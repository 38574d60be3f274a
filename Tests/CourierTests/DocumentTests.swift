import Linux
import Testing
import Vocabulary

@testable import Courier

/// `docs/delivery.md` says what the code does: its table of answers is rendered from the enum.
@Suite struct DocumentTests {
    @Test func theDocumentedReactionsMatchTheCode() throws {
        let table = Self.table()
        #expect(
            try Self.text("delivery.md").contains("\n\n" + table + "\n"),
            "docs/delivery.md must hold exactly this table:\n\(table)")
    }

    /// Each is one clause, and none says the same as another.
    @Test func explanationsAreDistinctClauses() {
        var seen: Set<String> = []
        for reason in PushReason.allCases where reason != .badEnvironmentKeyInToken {
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

    /// By status, first the reasons that differ from any other of the same status.
    private static func table() -> String {
        var rows = ["| status | reason | what follows |", "|---|---|---|"]
        for status in [400, 403, 404, 405, 410, 413, 429, 500, 503] {
            let other = Answer(status: status, body: []).reaction.words
            var reasons: [(names: [String], words: String)] = []
            for reason in PushReason.allCases where reason.status == status {
                let words = Answer(status: status, body: Array(#"{"reason":"\#(reason.rawValue)"}"#.utf8)).reaction.words
                if words == other { continue }
                if let known = reasons.firstIndex(where: { $0.words == words }) {
                    reasons[known].names.append("`\(reason.rawValue)`")
                } else {
                    reasons.append((["`\(reason.rawValue)`"], words))
                }
            }
            rows += reasons.map { "| \(status) | \($0.names.joined(separator: ", ")) | \($0.words) |" }
            rows.append("| \(status) | any other, or none | \(other) |")
        }
        return rows.joined(separator: "\n") + "\n"
    }
}
