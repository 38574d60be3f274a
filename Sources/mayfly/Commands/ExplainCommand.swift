import Courier
import JSON
import Vocabulary

/// `mayfly apns explain`: a reason in words, by Apple's name, the courier's, or the one that the log has for it.
enum ReasonText {
    static func explain(_ names: [String], json: Bool) throws {
        let reasons = try names.isEmpty ? APNsReason.allCases : names.map { try reason($0) }
        if json { return Terminal.out("[" + reasons.map(self.json).joined(separator: ",\n") + "]") }
        if names.isEmpty {
            for reason in reasons { Terminal.out("\(reason.rawValue)\(status(reason)): \(reason.explanation.means)") }
        } else {
            Terminal.out(reasons.map(whole).joined(separator: "\n\n"))
        }
    }

    private static func reason(_ name: String) throws -> APNsReason {
        let lower = name.lowercased()
        guard let reason = APNsReason.allCases.first(where: { $0.rawValue.lowercased() == lower }) else {
            throw UsageError(
                "\(ShownWord(name)) is not a reason of Apple's or the log's: `mayfly apns explain` lists them")
        }
        return reason
    }

    private static func status(_ reason: APNsReason) -> String { reason.status.map { " (\($0))" } ?? "" }

    static func whole(_ reason: APNsReason) -> String {
        let said = reason.explanation
        return """
            \(reason.rawValue)\(status(reason))
              means        \(said.means)
              whose fault  \(said.fault.words)
              Mayfly       \(reason.does)
              do           \(said.remedy)
            """
    }

    private static func json(_ reason: APNsReason) -> String {
        let said = reason.explanation
        return Terminal.json { json in
            json.add("reason", reason.rawValue)
            json.add("status", orNull: reason.status)
            json.add("means", said.means)
            json.add("fault", said.fault.rawValue)
            json.add("does", reason.does)
            json.add("remedy", said.remedy)
        }
    }
}
