import EventLoop
import HTTPServer
import Linux

/// The simulator as a child. It belongs to a loop whose thread lives as long as this process, since the child's end is tied to
/// the thread that starts it.
actor SimulatorProcess: LoopActor {
    nonisolated let loop: EventLoop
    private var child: ChildProcess?

    init(loop: EventLoop) { self.loop = loop }

    func start(_ arguments: [String]) throws {
        child = try ChildProcess.spawn(try ProcessControl.executable(), arguments: arguments)
    }

    func waitUntilReady(_ client: HTTPClient, _ url: String) async throws {
        for _ in 0..<250 {
            let answer = try? await client.send(url, timeoutMs: 1_000)
            // Another process could answer in our child's place.
            guard try child?.poll() == nil else { break }
            if answer?.status == 200 { return }
            try await loop.sleep(20)
        }
        throw CommandFailed("the APNs simulator did not start; its error is printed above")
    }

    func stop() {
        try? child?.send(.terminate)
        _ = try? child?.wait()
        child = nil
    }
}
