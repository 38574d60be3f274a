import Courier
import JSON

/// `mayfly apns explain`: a reason in words, by Apple's name, the courier's, or the one that the log has for it.
enum ReasonText {
    private struct Row {
        let name: String
        let status: Int?
        let said: Explanation
        let does: String

        init(_ reason: Reason) {
            name = reason.rawValue
            status = reason.status
            said = reason.explanation
            does = reason.does
        }

        init(_ name: String, _ said: Explanation, does: String) {
            (self.name, status, self.said, self.does) = (name, nil, said, does)
        }
    }

    /// The log's one reason for whatever kept a push from being sent.
    private static let unsent = Row(
        "unsent",
        Explanation(
            "the push was never sent: the peer came back, the token was destroyed, or the job expired", .nobody, "nothing"
        ),
        does: "sends nothing")

    static func explain(_ names: [String], json: Bool) throws {
        let rows = try names.isEmpty ? Reason.allCases.map(Row.init) + [unsent] : names.map { try row($0) }
        if json { return Terminal.out("[" + rows.map(self.json).joined(separator: ",\n") + "]") }
        if names.isEmpty {
            for row in rows { Terminal.out("\(row.name)\(status(row)): \(row.said.means)") }
        } else {
            Terminal.out(rows.map(whole).joined(separator: "\n\n"))
        }
    }

    static func whole(_ reason: Reason) -> String { whole(Row(reason)) }

    private static func row(_ name: String) throws -> Row {
        switch name.lowercased() {
        case unsent.name: return unsent
        case let lower:
            guard let reason = Reason.allCases.first(where: { $0.rawValue.lowercased() == lower }) else {
                throw UsageError(
                    "\(ShownWord(name)) is not a reason of Apple's or the log's: `mayfly apns explain` lists them")
            }
            return Row(reason)
        }
    }

    private static func status(_ row: Row) -> String { row.status.map { " (\($0))" } ?? "" }

    private static func whole(_ row: Row) -> String {
        """
        \(row.name)\(status(row))
          means        \(row.said.means)
          whose fault  \(row.said.fault.words)
          Mayfly       \(row.does)
          do           \(row.said.remedy)
        """
    }

    private static func json(_ row: Row) -> String {
        Terminal.json { json in
            json.add("reason", row.name)
            json.add("status", orNull: row.status)
            json.add("means", row.said.means)
            json.add("fault", row.said.fault.rawValue)
            json.add("does", row.does)
            json.add("remedy", row.said.remedy)
        }
    }
}
