public import Vocabulary

/// How a push ended.
public enum Outcome: Sendable, Equatable {
    /// Apple has taken it.
    case delivered
    /// `status`: of Apple's last answer; 0 where there was none.
    case failed(status: Int, reason: APNsReason, verdict: Verdict)
}

/// What becomes of the token.
public enum Verdict: Sendable, Equatable {
    case keep
    /// Purge it if it was sealed at or before this moment (unix ms); nil: whenever it was.
    case purge(ifSealedBefore: UInt64?)
    /// Keep it: the fault lies in keys, certificate, topic or environment, and an operator must mend it.
    case configuration
}
