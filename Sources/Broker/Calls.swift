public import EventLoop

/// Phones that ring: a call is told once, to all phones of whom it is for.
public actor Calls: LoopActor {
    public nonisolated let loop: EventLoop
    public nonisolated let audiences: Audiences

    public init(audiences: Audiences) {
        loop = audiences.loop
        self.audiences = audiences
    }
}
