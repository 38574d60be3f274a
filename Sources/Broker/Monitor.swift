public import EventLoop

/// Devices that watch something at work: a printer. What is told of it goes to all that registered for it and asked for such news.
public actor Monitor: LoopActor {
    public nonisolated let loop: EventLoop
    public nonisolated let audiences: Audiences

    public init(audiences: Audiences) {
        loop = audiences.loop
        self.audiences = audiences
    }
}
