import Synchronization

/// Carries an operation's value from its run to its commit.
final class ResultSlot<Value: Sendable>: Sendable {
    private let value = Mutex<Value?>(nil)

    func set(_ new: Value) { value.withLock { $0 = new } }

    /// The value; asked for only after a run that did not throw.
    func take() -> Value {
        guard let value = value.withLock({ $0 }) else { preconditionFailure("an operation ended without a value") }
        return value
    }
}
