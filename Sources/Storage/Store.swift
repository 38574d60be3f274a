public import Synchronization

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
    @inlinable
    public func read<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(StoreError) -> Value {
        try await carryOut(body, .read, on: self)
    }

    @inlinable
    public func write<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(StoreError) -> Value {
        try await carryOut(body, .write, on: self)
    }

    public func hold() {}
    public func release() {}
}

/// Returns when an operation is done and, if it writes, durable.
///
/// This is a function and not a method of `Store`: methods of `any Store` aren't specialised for `Value`, and looking up generic types at run
/// time costs 3 % of a request.
@inlinable
public func carryOut<Value: Sendable>(
    _ body: @escaping @Sendable (Transaction) throws -> Value, _ access: Access, on store: any Store
) async throws(StoreError) -> Value {
    let result = await withCheckedContinuation { continuation in
        store.submit(WaitingCall(body, continuation), access)
    }
    return try result.get()
}

/// What a task waits for: done on a thread of the store with what is there, and answered after that.
@usableFromInline
final class WaitingCall<Context, Value: Sendable>: Sendable {
    @usableFromInline let body: @Sendable (Context) throws -> Value
    @usableFromInline let continuation: CheckedContinuation<Result<Value, StoreError>, Never>
    @usableFromInline let value = Mutex<Value?>(nil)

    @inlinable
    init(
        _ body: @escaping @Sendable (Context) throws -> Value,
        _ continuation: CheckedContinuation<Result<Value, StoreError>, Never>
    ) {
        (self.body, self.continuation) = (body, continuation)
    }

    @inlinable
    func run(_ context: Context) throws {
        let new = try body(context)
        value.withLock { $0 = new }
    }

    @inlinable
    func finish(_ error: StoreError?) {
        if let error { return continuation.resume(returning: .failure(error)) }
        guard let value = value.withLock({ $0 }) else { preconditionFailure("a call ended without a value") }
        continuation.resume(returning: .success(value))
    }
}

extension WaitingCall: Operation where Context == Transaction {}
