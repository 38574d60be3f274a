import EventLoop
import Linux
import WebSocket

// Deadlines: a timer for each kind, set for the first of its list.
extension HTTPServer {
    func setDeadline(_ connection: Connection, _ kind: Deadlines.Kind) {
        deadlines.set(connection.slot, kind, nowMs: loop.now)
        schedule(kind)
    }

    private func schedule(_ kind: Deadlines.Kind) {
        guard let due = deadlines.nextDue(kind), timers.insert(kind).inserted else { return }
        loop.after(due > loop.now ? due - loop.now : 0) {
            self.timers.remove(kind)
            while let slot = self.deadlines.takeExpired(kind, nowMs: self.loop.now) {
                if let connection = self.slots[slot] { self.expire(connection, kind) }
            }
            self.schedule(kind)
        }
    }

    private func expire(_ connection: Connection, _ kind: Deadlines.Kind) {
        switch kind {
        case .firstMessage where connection.state != .webSocket, .ping where connection.state != .webSocket: drop(connection)
        case .streams: if let table = connection.streams { checkStreams(connection, table) }
        case .header where connection.streams != nil, .idle where connection.state == .streams: finishStreams(connection)
        case .header, .body: refuse(connection, .requestTimeout)
        case .idle:
            connection.state = .finishing
            markDirty(connection)
        case .write:
            connection.socket.resetOnClose()
            drop(connection)
        case .handshake, .linger, .pong, .close: drop(connection)
        case .firstMessage: close(connection, .policyViolation)
        case .ping: ping(connection)
        }
    }
}
