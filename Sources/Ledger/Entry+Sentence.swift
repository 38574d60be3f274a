import Vocabulary

extension Entry {
    /// What the entry says, in words for whoever it is shown to: one line. Times are starts of windows.
    public var sentence: String {
        let at = Timestamp.text(atMs)
        return switch op {
        case .brokerStarted(let node, let version, _, let resolution, let binary):
            "the broker \(node), version \(version), program \(binary.hex), started at \(at), with windows of \(resolution) s"
        case .brokerStopped(let node): "the broker \(node) stopped at \(at)"
        case .policyLoaded(let name, let policy): "from \(at) on the policy \(name) was in force, policies/\(policy.hex).json"
        case .keysGenerated(let generation): "generation \(generation) of the keys began at \(at)"
        case .keysRatcheted(let epoch, let swept):
            "at \(at) the keys of epoch \(epoch) and of all before it were destroyed, and every token due before epoch \(swept) was purged"
        case .tokenOpened(let id, let job, let template):
            "a token was opened at \(at) for one push, id \(id), job \(job), template \(template). \(Self.unpurged)"
        case .pushDelivered(let job, let status):
            "the push of job \(job) was accepted by Apple at \(at), status \(status). \(Self.unpurged)"
        case .pushFailed(let job, let status, let reason):
            "the push of job \(job) failed at \(at), status \(status), reason \(reason.rawValue). \(Self.unpurged)"
        case .tokenSealed(let id, let untilMs):
            "a token was sealed before \(at), id \(id), to be purged by \(Timestamp.text(untilMs)). \(Self.unpurged)"
        case .tokenPurged(let id, let cause): "a token was purged before \(at), id \(id), cause \(cause.name)"
        case .bucketClosed(let untilMs, let sealed, let expired, let ended):
            "the tokens due by \(Timestamp.text(untilMs)) were settled at \(at): \(sealed) sealed, \(expired) expired, \(ended) ended early"
        case .requestRefused(let cause, let count): "about \(count) requests were refused at \(at), cause \(cause.rawValue)"
        case .ledgerClosed(let next): "the log was closed at \(at); \(next) follows it"
        case .ledgerOpened(let previous, let size, _, let jobs):
            "the log was opened at \(at); it continues \(previous), which had \(size) entries, with \(jobs) pushes under way"
        case .bucketCarried(let untilMs, let live):
            "the log before left \(live) live tokens that are due by \(Timestamp.text(untilMs))"
        }
    }

    private static let unpurged = "This doesn't prove that the token was purged"
}
