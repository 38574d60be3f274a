import Broker
import EventLoop
import Storage
import Synchronization

/// Watches whether this node alone has the keys: no other node serves, and there is no wrapped key file.
final class LoneKeys: Sendable {
    private let isLone = Mutex(false)

    private static let periodMs: UInt64 = 2_000

    static let warning =
        "this node is alone, and its keys are only in memory. If it stops or restarts, e.g. for an upgrade, \(loss). "
        + "Start another node first, or use \(Setting.wrappingKey.named)"
    /// For commands that run before there is a node.
    static let meaning = "If a node that is alone without a wrapped key file stops or restarts, e.g. for an upgrade, \(loss)"
    private static let loss = "everything sealed is forgotten"

    /// True if a stop of this node would forget everything sealed.
    var isTrue: Bool { isLone.withLock(\.self) }

    /// Logs each change until the task is cancelled.
    /// - Parameter otherNodes: returns how many other nodes serve. Their keys are in use, so they have them all.
    func run(on loop: EventLoop, otherNodes: @Sendable () async throws -> Int) async {
        while !Task.isCancelled {
            // If the database can't be read, keep the last result. The lease reports the outage.
            if let others = try? await otherNodes() { note(others == 0) }
            do { try await loop.sleep(Self.periodMs) } catch { return }
        }
    }

    private func note(_ isNow: Bool) {
        let wasBefore = isLone.withLock { isLone in
            defer { isLone = isNow }
            return isLone
        }
        guard isNow != wasBefore else { return }
        if isNow {
            Terminal.log(.warning, "keys: \(Self.warning)")
        } else {
            Terminal.log("keys: another node now has the keys, so this node can restart without a loss")
        }
    }
}
