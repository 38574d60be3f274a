import EventLoop
import HTTPServer
import Linux
import WebSocket

/// The connection of one phone of the demo page.
///
/// A browser answers the broker's pings by itself, even for a page that does nothing. So the page's WebSockets end here, and each has a twin: a socket
/// between this process and the broker. While the phone is suspended, the twins stay open, but nothing is read from them and no ping is answered.
/// To the broker it looks like an app that iOS has suspended.
actor DemoPhone: LoopActor {
    nonisolated let loop: EventLoop
    private(set) var isSuspended = false
    private var twins: [WebSocketHandle: Twin] = [:]

    private struct Twin {
        let socket: WebSocketClient
        /// The code with which the page closed its socket. Nil while it is open.
        var closed: CloseCode?
        var isPaused = false
    }

    /// How long a pause may last after the page has gone.
    private static let longestPauseMs: UInt64 = 120_000
    private static let roundMs: UInt64 = 100

    init(loop: EventLoop) { self.loop = loop }

    /// Suspends the phone. When this returns, nothing is read any more.
    func suspend() async {
        isSuspended = true
        while isSuspended, twins.values.contains(where: { !$0.isPaused }) { await pause(20) }
    }

    func resume() {
        isSuspended = false
        for socket in twins.keys { twins[socket]?.isPaused = false }
    }

    /// Handles a WebSocket that the page opened.
    func opened(_ socket: WebSocketHandle, broker: String) async {
        guard !isSuspended else { return await socket.close(.goingAway) }
        let twin = WebSocketClient(loop: loop)
        do {
            try await twin.connect(broker)
        } catch {
            return await socket.close(.internalError)
        }
        twins[socket] = Twin(socket: twin)
        await socket.markJoined()
        Task { await deliver(from: twin, to: socket) }
    }

    /// Sends a message of the page to the broker.
    func received(_ text: [UInt8], on socket: WebSocketHandle) async {
        guard !isSuspended, let twin = twins[socket]?.socket else { return }
        // If the broker has closed, `deliver` finds out.
        try? await twin.send(text)
    }

    func closed(_ socket: WebSocketHandle, code: CloseCode) { twins[socket]?.closed = code }

    /// Sends the broker's messages to the page until one of both closes.
    private func deliver(from twin: WebSocketClient, to socket: WebSocketHandle) async {
        var code = CloseCode.normal
        var pausedMs: UInt64 = 0
        var isOpen = true
        while isOpen, let state = twins[socket] {
            if isSuspended, state.closed == nil || pausedMs < Self.longestPauseMs {
                twins[socket]?.isPaused = true
                if state.closed != nil { pausedMs += Self.roundMs }
                await pause(Self.roundMs)
            } else if let closed = state.closed {
                // Any other code means a broken connection, and some of them can't be sent.
                code = closed == .normal || closed == .goingAway ? closed : .internalError
                isOpen = false
            } else {
                isOpen = await deliverNext(from: twin, to: socket)
            }
        }
        twins[socket] = nil
        await twin.close(code)
        await socket.close(.goingAway)
    }

    /// Waits only briefly, so that a suspension takes hold soon. Returns false once the broker has closed.
    private func deliverNext(from twin: WebSocketClient, to socket: WebSocketHandle) async -> Bool {
        do {
            guard let message = try await twin.receive(timeoutMs: Self.roundMs) else { return false }
            await socket.send(message)
            return true
        } catch {
            return error == .timedOut
        }
    }

    /// The loop's sleep fails only if the task is cancelled, and nobody cancels these.
    private func pause(_ ms: UInt64) async { try? await loop.sleep(ms) }
}
