/// An actor that runs on an event loop's thread.
///
/// Its methods may be called by other actors of the same loop without a switch, and by the loop's callbacks through
/// `assumeIsolated`. A closure made in such an actor and given to `after` or `atEndOfTurn` may use the actor directly.
public protocol LoopActor: Actor {
    nonisolated var loop: EventLoop { get }
}

extension LoopActor {
    public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
}
