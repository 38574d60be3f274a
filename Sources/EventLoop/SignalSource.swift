public import Linux

extension EventLoop {
    /// Calls `action` on the loop whenever the process gets `signal`, which is blocked for the calling thread and those it
    /// starts. Every other thread must have it blocked (`Signal.block` first in `main`), or its default action stays.
    public func onSignal(_ signal: Signal, _ action: @escaping () -> Void) throws(Errno) {
        let source = SignalSource(queue: try SignalQueue([signal]), action: action)
        _ = try add(source.queue.descriptor.raw, .read, source)
    }
}

private final class SignalSource: EventSource {
    let queue: SignalQueue
    private let action: () -> Void

    init(queue: consuming SignalQueue, action: @escaping () -> Void) {
        self.queue = queue
        self.action = action
    }

    func ready(_ events: Events) {
        while queue.next() != nil { action() }
    }
}
