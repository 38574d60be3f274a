import Vocabulary

/// Limits how many steps run at the same time. Further steps wait, first come, first served.
///
/// It belongs to one actor and is used in the actor's isolation.
final class Limiter {
    private let limit: Int
    private var running = 0
    private var waiting = Queue<CheckedContinuation<Void, Never>>()

    init(_ limit: Int) { self.limit = limit }

    /// Steps that run or wait.
    var count: Int { running + waiting.count }

    nonisolated(nonsending) func acquire() async {
        if running < limit {
            running += 1
        } else {
            await withCheckedContinuation { waiting.append($0) }
        }
    }

    /// Ends a step. The first one that waits takes its place.
    func release() {
        if let next = waiting.popFirst() { next.resume() } else { running -= 1 }
    }
}
