import Synchronization

/// The durable part of the broker: operations on rows (`Transaction`), and what keeps them in order (`Keeping`).
public protocol Store: Keeping {
    /// Has an operation carried out, and finished when all of it is durable or none of it is kept.
    func submit(_ operation: any Operation, _ access: Access)

    /// What is asked for until `release` may wait for it, so that it is done together.
    func hold()
    func release()
    func shutDown() async
}

/// How an operation uses the store.
public enum Access: Sendable {
    /// It sees what is durable.
    case read
    case write
    /// It reads so much that nobody else is to wait for it.
    case survey
}

/// An operation on its way through a store.
public protocol Operation: AnyObject, Sendable {
    /// Called once, or again where the first run was undone.
    func run(_ transaction: Transaction) throws
    /// Called once at the end.
    /// - Parameter error: why nothing of it was kept.
    func finish(_ error: StoreError?)
}

extension Store {
    public func read<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(StoreError) -> Value {
        try await perform(.read, body)
    }

    public func write<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(StoreError) -> Value {
        try await perform(.write, body)
    }

    public func perform<Value: Sendable>(
        _ access: Access, _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(StoreError) -> Value {
        let result = await withCheckedContinuation { continuation in
            submit(WaitingCall(body, continuation), access)
        }
        return try result.get()
    }

    public func hold() {}
    public func release() {}
}

/// What a task waits for: done on a thread of the store with what is there, and answered after that.
final class WaitingCall<Context, Value: Sendable>: Sendable {
    private let body: @Sendable (Context) throws -> Value
    private let continuation: CheckedContinuation<Result<Value, StoreError>, Never>
    private let value = Mutex<Value?>(nil)

    init(
        _ body: @escaping @Sendable (Context) throws -> Value,
        _ continuation: CheckedContinuation<Result<Value, StoreError>, Never>
    ) {
        (self.body, self.continuation) = (body, continuation)
    }

    func run(_ context: Context) throws {
        let new = try body(context)
        value.withLock { $0 = new }
    }

    func finish(_ error: StoreError?) {
        if let error { return continuation.resume(returning: .failure(error)) }
        guard let value = value.withLock({ $0 }) else { preconditionFailure("a call ended without a value") }
        continuation.resume(returning: .success(value))
    }
}

extension WaitingCall: Operation where Context == Transaction {}
