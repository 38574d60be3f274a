import Foundation

/// A companion's push. It has no text that Apple or the broker could read.
public struct CompanionNotification: Hashable, Sendable {
    public enum Kind: Hashable, Sendable {
        /// An assistant waits for an answer, until `expiresAt`.
        case approval(requestID: String, expiresAt: Date?)
        case question(questionID: String)
        /// A task is complete.
        case complete
        /// A task has failed.
        case failed
        /// An approval or question no longer needs an answer. Take its notification off the screen.
        case clearApproval(requestID: String, reason: ClearingReason)
        /// Take all notifications of the session off the screen.
        case clearSession
        /// Another client is active in the session. This one may end its Live Activity.
        case handoff(to: ClientType)
    }

    /// Why a notification is cleared.
    public enum ClearingReason: BrokerWord {
        /// It was answered on another device, or a user cleared it.
        case answered
        case timedOut
        /// The back end no longer needs the answer.
        case withdrawn
        /// A word of a later broker.
        case unknown(String)

        private static let words = Words<Self>([.answered, .timedOut, .withdrawn])

        public init(rawValue: String) { self = Self.words[rawValue] ?? .unknown(rawValue) }

        public var rawValue: String {
            switch self {
            case .answered: "approved_on_other_device"
            case .timedOut: "timed_out"
            case .withdrawn: "withdrawn"
            case .unknown(let word): word
            }
        }
    }

    public let kind: Kind
    /// What the push calls the session. Nil for ``Kind/clearApproval(requestID:reason:)``.
    public let sessionHandle: String?
    /// The session. Nil if this phone doesn't know it.
    public let sessionID: String?

    /// Groups the notifications of one session.
    public var threadIdentifier: String { sessionHandle ?? "" }

    /// Whether the push only takes notifications off the screen. An open app shows no banner for it.
    public var isClearing: Bool {
        switch kind {
        case .clearApproval, .clearSession: true
        case .approval, .question, .complete, .failed, .handoff: false
        }
    }

    /// Reads a push. Returns nil if it is not a companion's, or of a later type. Then show it as it came.
    ///
    /// - Parameters:
    ///   - payload: `userInfo` of the notification.
    ///   - sessions: what this phone knows: ``Registration/table(_:_:)`` of the kind ``Registration/Kind/session``.
    public init?(payload: [AnyHashable: Any], sessions: HandleTable) {
        func text(_ key: String) -> String? { payload[key] as? String }
        switch text("type") {
        case "approval":
            guard let request = text("requestId") else { return nil }
            kind = .approval(requestID: request, expiresAt: text("expiresAt").flatMap(Self.date))
        case "question":
            guard let question = text("questionId") else { return nil }
            kind = .question(questionID: question)
        case "complete": kind = .complete
        case "error": kind = .failed
        case "clear_approval":
            guard let request = text("requestId") else { return nil }
            kind = .clearApproval(requestID: request, reason: ClearingReason(rawValue: text("reason") ?? ""))
        case "clear_session": kind = .clearSession
        case "session_handoff": kind = .handoff(to: ClientType(rawValue: text("handedOffTo") ?? ""))
        default: return nil
        }
        sessionHandle = text("sessionId")
        sessionID = sessionHandle.flatMap(sessions.name)
    }

    /// Returns whether this clearing push removes a shown notification. It also removes a clearing push's own text.
    ///
    /// - Parameter shown: `userInfo` of a delivered notification.
    public func clears(_ shown: [AnyHashable: Any]) -> Bool {
        switch kind {
        case .clearApproval(let request, _):
            return ["requestId", "questionId"].contains { shown[$0] as? String == request }
        case .clearSession: return sessionHandle != nil && shown["sessionId"] as? String == sessionHandle
        case .approval, .question, .complete, .failed, .handoff: return false
        }
    }

    /// Reads a time of the broker, such as `2026-01-02T03:04:05Z`.
    private static func date(_ text: String) -> Date? { try? Date(text, strategy: .iso8601) }
}

/// The categories of a companion's pushes. Register one with actions of the app's own under its raw value.
public enum CompanionCategory: String, CaseIterable, Sendable {
    case approval = "APPROVAL_REQUEST"
    case question = "QUESTION_ASKED"
    case complete = "TASK_COMPLETE"
    case failed = "TASK_ERROR"
}
