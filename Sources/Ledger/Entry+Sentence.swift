extension Entry {
    /// What the entry says, in words for whoever it is shown to: one line. Times are starts of windows.
    public var sentence: String {
        let at = Timestamp.text(atMs)
        return switch op {
        case .brokerStarted(let node, let version, _, let resolution):
            "the broker \(node), version \(version), started at \(at), with windows of \(resolution) s"
        case .brokerStopped(let node): "the broker \(node) stopped at \(at)"
        case .policyLoaded(let name, let policy): "from \(at) on the policy \(name) was in force, policies/\(policy).json"
        case .keysGenerated(let generation): "generation \(generation) of the keys began at \(at)"
        case .keysRatcheted(let epoch): "at \(at) the keys of epoch \(epoch) and of all before it were destroyed"
        case .tokenSealed(let ref, let kind, let untilMs):
            "token \(ref) (\(kind.rawValue)) was taken in at \(at), to be purged by \(Timestamp.text(untilMs))\(Self.unpurged)"
        case .tokenOpened(let ref, let job, let template):
            "token \(ref) was opened at \(at) for one push, job \(job), template \(template)\(Self.unpurged)"
        case .pushDelivered(let ref, let job, let status):
            "a push to token \(ref), job \(job), was taken by Apple at \(at), status \(status)\(Self.unpurged)"
        case .pushFailed(let ref, let job, let status, let reason):
            "a push to token \(ref), job \(job), failed at \(at), status \(status), reason \(reason.rawValue)\(Self.unpurged)"
        case .tokenPurged(let ref, let cause): "token \(ref) was purged at \(at), cause \(cause.rawValue)"
        case .requestRefused(let cause, let count): "about \(count) requests were refused at \(at), cause \(cause.rawValue)"
        case .ledgerClosed(let next): "the log was closed at \(at); \(next) follows it"
        }
    }

    private static let unpurged = ". That it was purged is not proved by this"
}
