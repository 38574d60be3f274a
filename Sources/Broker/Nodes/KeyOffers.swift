public import EventLoop
import Ledger
public import Sealing

/// Gives this node's keys to other nodes. A step of the keys waits for those that ask regularly.
public actor KeyOffers: LoopActor {
    private struct Caller {
        var edition: UInt64
        /// When it asked last, on the loop's clock.
        var seen: UInt64
        /// True once the caller had the latest keys.
        var hasCaughtUp = false
    }

    /// A request that waits for a new edition.
    private struct Waiting {
        let continuation: CheckedContinuation<Void, Never>
        let timer: TimerID
    }

    public nonisolated let loop: EventLoop
    private let keys: KeyRing
    private let log: Logger
    private var callers: [String: Caller] = [:]
    private var waiting: [UInt64: Waiting] = [:]
    private var requests: UInt64 = 0

    /// How long a request waits for a new edition.
    private static let patienceMs: UInt64 = 5_000
    /// The longest time since a caller's last request for which a step waits for it.
    private static let presentMs: UInt64 = 2 * patienceMs
    private static let longestWaitMs: UInt64 = 5_000
    private static let mostCallers = 64

    public init(loop: EventLoop, keys: KeyRing, log: Logger) {
        (self.loop, self.keys, self.log) = (loop, keys, log)
        keys.onNewEdition { [weak self] in
            guard let self else { return }
            loop.submit { self.assumeIsolated { $0.answerAll() } }
        }
    }

    /// Answers at once if the caller lacks the latest keys, otherwise when they change, or after some seconds.
    /// - Returns: nil if the keys can't be sealed for the caller: its public key is malformed, or no memory can be locked.
    public func answer(_ request: KeyRequest) async -> KeyAnswer? {
        note(request)
        if keys.edition == request.edition { await waitForEdition() }
        if keys.edition == request.edition { return .unchanged }
        return keys.sealed(for: request.publicKey).map(KeyAnswer.changed)
    }

    private func note(_ request: KeyRequest) {
        let (now, name) = (loop.now, request.name.description)
        callers = callers.filter { now - $0.value.seen < Self.presentMs }
        let (isCurrent, known) = (request.edition == keys.edition, callers[name]?.hasCaughtUp ?? false)
        if isCurrent, !known { log.info("nodes: \(name) has the latest keys") }
        if callers.count < Self.mostCallers || callers[name] != nil {
            callers[name] = Caller(edition: request.edition, seen: now, hasCaughtUp: known || isCurrent)
        }
    }

    private func waitForEdition() async {
        requests += 1
        let number = requests
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if Task.isCancelled { return continuation.resume() }
                let timer = loop.after(Self.patienceMs) { self.assumeIsolated { $0.end(number) } }
                waiting[number] = Waiting(continuation: continuation, timer: timer)
            }
        } onCancel: {
            loop.submit { self.assumeIsolated { $0.end(number) } }
        }
    }

    private func answerAll() { for number in waiting.keys.sorted() { end(number) } }

    private func end(_ number: UInt64) {
        guard let ended = waiting.removeValue(forKey: number) else { return }
        loop.cancel(ended.timer)
        ended.continuation.resume()
    }

    /// Waits until all present callers have the keys that are offered, for some seconds at most.
    public func waitForCallers() async {
        let (edition, start) = (keys.edition, loop.now)
        while loop.now - start < Self.longestWaitMs {
            let isWaiting = callers.values.contains { $0.edition != edition && loop.now - $0.seen < Self.presentMs }
            if !isWaiting { return }
            do { try await loop.sleep(Self.pauseMs) } catch { return }
        }
    }

    /// Between two looks at the callers.
    private static let pauseMs: UInt64 = 20
}
