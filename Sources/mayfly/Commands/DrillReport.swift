import Broker
import JSON
import Ledger
import Storage
import Vocabulary

/// What `mayfly drill` found: for people, for programs, and to be published.
struct DrillReport {
    let question: String
    /// Unix ms.
    let now: UInt64
    var findings: [Drill.Finding] = []
    /// The log as it was signed last.
    var head: LogHead?
    /// Join codes that can be tried in a second.
    var triesPerSecond: Int?

    /// At most 24 lines of 79 columns.
    var text: String {
        var lines = ["What could be handed over at \(Timestamp.text(now)) (question: \(question)):"]
        lines.append(Self.row("", "held", "opens", "because"))
        for finding in findings {
            let row = Self.row(
                Self.words(finding.subject), finding.held.map { String($0) } ?? "?", String(finding.opens), finding.because)
            let until = finding.opens > 0 ? finding.until.map { "; until \(Self.minute($0))" } ?? "" : ""
            // What has no room here stands in `json`.
            lines.append(row.count + until.count > 79 ? row : row + until)
        }
        if let triesPerSecond {
            let sixDigits = (1_000_000 + triesPerSecond - 1) / triesPerSecond
            lines.append("Short join codes: \(triesPerSecond) tries a second here; six digits fall in \(sixDigits) s.")
        }
        if let until = findings.compactMap(\.until).max() {
            lines.append("After \(Self.minute(until)) nothing of this opens, if a broker runs until then.")
        }
        lines.append("Not examined: the broker's memory, Apple's records, a proxy's logs.")
        return lines.joined(separator: "\n")
    }

    /// One object; `until` in RFC 3339.
    var json: String {
        Terminal.json { json in
            json.add("at", timeMs: now)
            json.add("question", question)
            if let triesPerSecond { json.add("codesTriedPerSecond", triesPerSecond) }
            json.add("findings", objects: findings) { json, finding in
                json.add("subject", finding.subject.rawValue)
                json.add("held", orNull: finding.held)
                json.add("opens", finding.opens)
                json.add("because", finding.because)
                json.add("until", orNull: finding.until.map(Timestamp.text))
            }
        }
    }

    /// What is signed to be published: counts rounded as metrics are. The first two lines are none of a checkpoint, whatever
    /// the origin.
    func statement(origin: String) -> String {
        var text = "mayfly drill\n\(Timestamp.text(now))\n\(origin)\nsize \(head?.size ?? 0)\n"
        if let triesPerSecond { text += "codes tried a second: \(Metrics.rounded(triesPerSecond))\n" }
        text += "subject, held, opens (rounded; 5 is 1 to 9), because\n"
        for finding in findings {
            let held = finding.held.map { String(Metrics.rounded($0)) } ?? "?"
            text += "\(finding.subject.rawValue) \(held) \(Metrics.rounded(finding.opens)) \(finding.because)\n"
        }
        return text
    }

    private static func row(_ name: String, _ held: String, _ opens: String, _ because: String) -> String {
        func padding(_ text: String, _ width: Int) -> String { String(repeating: " ", count: max(1, width - text.count)) }
        return name + padding(name + held, 27) + held + padding(opens, 8) + opens + "  " + because
    }

    private static func words(_ subject: Drill.Finding.Subject) -> String {
        switch subject {
        case .roomTokens: "tokens of rooms"
        case .queuedTokens: "tokens under way"
        case .audienceTokens: "tokens of audiences"
        case .roomIDs: "room ids"
        case .joinCodes: "join codes"
        case .shortCodes: "short join codes"
        case .acceptAnswers: "answers to accepts"
        case .members: "members of rooms"
        case .pairs: "who shared a room"
        case .ends: "ends of rooms"
        case .knocks: "last knocks"
        case .addresses: "addresses"
        case .users: "users"
        case .approvals: "approvals"
        case .names: "activities' names"
        case .sessions: "sessions and runs"
        case .seen: "named events, calls"
        case .entries: "waiting entries"
        case .sockets: "open sockets"
        case .room: "the room"
        case .creatorToken: "creator's token"
        case .joinerToken: "joiner's token"
        case .refs: "refs in the log"
        case .devices: "the user's devices"
        case .activities: "Live Activities"
        case .phones: "phones that ring"
        case .monitors: "printers' devices"
        case .run: "the printer's run"
        }
    }

    /// `2026-01-02 03:04`, in UTC.
    private static func minute(_ ms: UInt64) -> String { String(Timestamp.text(ms).prefix(16).replacing("T", with: " ")) }
}
