/// An actor that runs on an event loop's thread.
///
/// A task that prefers the loop calls from one of its actors to the next without another turn. The loop's callbacks call them through
/// `assumeIsolated`. A closure made in such an actor and given to `after` or `atEndOfTurn` may use the actor directly.
public protocol LoopActor: Actor {
    nonisolated var loop: EventLoop { get }
}

extension LoopActor {
    public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
}
