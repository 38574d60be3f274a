import Vocabulary

/// What to do with a push whose attempt was answered.
enum Step: Sendable, Equatable {
    case finish(Outcome)
    case retry(Retry)
}

struct Retry: Sendable, Equatable {
    /// After a backoff; at once where it is the connection's fault.
    var waits = true
    /// What the peer asked for.
    var leastMs: UInt64 = 0
    /// This connection takes no more.
    var replacesConnection = false
    /// The provider token is said to have expired.
    var renewsProviderToken = false
    /// Nothing else may go to this token until then.
    var holdsToken = false
}

/// What happened to a push so far: bounds what may happen once.
struct History: Sendable, Equatable {
    /// Attempts that ended in a wait.
    var failures = 0
    var renewedProviderToken = false
    var reconnected = false
}

extension Answer {
    /// An hour: with clocks further apart, Apple would take no provider token either.
    private static var clocksApartMs: UInt64 { 3_600_000 }

    /// Since when a 410 says the token is bad; nil if that can't be made out, and then the token may be a new registration's.
    private func badSinceMs(sentAtMs: UInt64) -> UInt64? {
        switch timestamp {
        // What was sealed after the attempt began is another registration.
        case .absent: sentAtMs
        case .unreadable: nil
        case .at(let ms): ms < sentAtMs || ms - sentAtMs <= Self.clocksApartMs ? ms : nil
        }
    }

    /// The whole table of reactions.
    /// - Parameters:
    ///   - history: of this push; changed where the step may be taken once only.
    ///   - sentAtMs: when the attempt began, unix ms.
    ///   - breaker: how it stands after this answer.
    func step(_ history: inout History, sealedAtMs: UInt64, sentAtMs: UInt64, breaker: PurgeBreaker.State) -> Step {
        if status == 200 { return .finish(.delivered) }
        let configuration = Step.finish(.failed(status: status, reason: reason, verdict: .configuration))
        let keep = Step.finish(.failed(status: status, reason: reason, verdict: .keep))
        switch reaction {
        case .purge:
            return switch breaker {
            case .closed: .finish(.failed(status: status, reason: reason, verdict: .purge(ifSealedBefore: nil)))
            case .unproven: keep
            case .open: configuration
            }
        case .purgeIfOlder:
            guard let badSinceMs = badSinceMs(sentAtMs: sentAtMs), sealedAtMs <= badSinceMs else { return keep }
            return .finish(.failed(status: status, reason: reason, verdict: .purge(ifSealedBefore: badSinceMs)))
        case .configuration: return configuration
        case .drop: return keep
        case .retry: return .retry(Retry(leastMs: retryAfterMs ?? 0))
        case .holdToken: return .retry(Retry(leastMs: retryAfterMs ?? 0, holdsToken: true))
        case .reconnect:
            // At once the first time, later with a wait: a server that always says so must not be hammered.
            defer { history.reconnected = true }
            let waits = history.reconnected || reason == .tooManyProviderTokenUpdates
            return .retry(Retry(waits: waits, leastMs: retryAfterMs ?? 0, replacesConnection: true))
        case .renewProviderToken:
            guard !history.renewedProviderToken else { return configuration }
            history.renewedProviderToken = true
            return .retry(Retry(waits: false, replacesConnection: true, renewsProviderToken: true))
        case .reconnectOnce:
            guard !history.reconnected else { return configuration }
            history.reconnected = true
            return .retry(Retry(waits: false, replacesConnection: true))
        }
    }
}
