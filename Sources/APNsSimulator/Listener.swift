import EventLoop
import Linux

/// Takes connections from a listening socket.
final class Listener: EventSource {
    let socket: Socket
    private let loop: EventLoop
    private let accept: (consuming Socket) -> Void
    private var registration: Registration?

    /// How long to pause when the process is out of descriptors.
    private static let pauseMs: UInt64 = 100

    init(_ socket: consuming Socket, loop: EventLoop, accept: @escaping (consuming Socket) -> Void) throws {
        self.socket = socket
        self.loop = loop
        self.accept = accept
        registration = try loop.add(self.socket.raw, .read, self)
    }

    func ready(_ events: Events) {
        do {
            for _ in 0..<64 {
                guard let accepted = try socket.accept() else { return }
                accept(accepted.take())
            }
        } catch {
            guard let registration else { return }
            loop.modify(registration, [])
            loop.after(Self.pauseMs) { [weak self] in
                if let self, let registration = self.registration { loop.modify(registration, .read) }
            }
        }
    }

    func close() {
        if let registration { loop.remove(registration) }
        registration = nil
    }
}
