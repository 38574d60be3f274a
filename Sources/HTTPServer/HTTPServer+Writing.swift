import EventLoop
import HTTP1
import HTTP2
import Linux
import TLS

// Writing, and ending connections after it.
extension HTTPServer {
    private static var spareLimit: Int { 64 }
    private static var spareBytes: Int { 16_384 }

    /// Has the connection written at the end of the turn.
    func markDirty(_ connection: Connection) {
        guard !connection.isDirty else { return }
        connection.isDirty = true
        if dirty.isEmpty { loop.atEndOfTurn { self.flushAll() } }
        dirty.append(connection.id)
    }

    private func flushAll() {
        var batch: [ConnectionID] = []
        swap(&batch, &dirty)
        for id in batch {
            guard let connection = connection(id) else { continue }
            connection.isDirty = false
            if !connection.isBlocked { flush(connection) }
        }
        if dirty.isEmpty {
            batch.removeAll(keepingCapacity: true)
            swap(&batch, &dirty)
        }
    }

    private enum FlushOutcome { case done, blocked, failed }

    func flush(_ connection: Connection) {
        var wire: [UInt8] = []
        swap(&wire, &connection.wire)
        switch write(connection, &wire) {
        case .done:
            releaseBlocked(connection)
            let wrote = !wire.isEmpty
            connection.wireOffset = 0
            recycle(&wire)
            written(connection, wrote: wrote)
        case .blocked:
            swap(&wire, &connection.wire)
            connection.isBlocked = true
            if connection.state != .webSocket { setDeadline(connection, .write) }
            holdBlocked(connection)
        case .failed:
            wipe(&wire)
            drop(connection)
        }
    }

    private func write(_ connection: Connection, _ wire: inout [UInt8]) -> FlushOutcome {
        guard encrypt(connection, &wire) else { return .failed }
        do throws(Errno) {
            while connection.wireOffset < wire.count {
                let written = try connection.socket.write(wire.span.extracting(droppingFirst: connection.wireOffset))
                guard let written else { return .blocked }
                connection.wireOffset += written
            }
        } catch {
            return .failed
        }
        return .done
    }

    /// Moves the turn's output to the wire, through TLS if there is any.
    private func encrypt(_ connection: Connection, _ wire: inout [UInt8]) -> Bool {
        if let tls = connection.tls { return encrypt(connection, tls, &wire) }
        connection.withOutput { output in
            if wire.isEmpty {
                swap(&wire, &output)
            } else {
                wire.reserveWiping(output.count)
                wire.append(contentsOf: output)
                wipe(&output)
                output.removeAll(keepingCapacity: true)
            }
        }
        return true
    }

    /// An idle connection holds no buffers; busy ones pass them around.
    func recycle(_ buffer: inout [UInt8]) {
        // Answers hold capabilities.
        wipe(&buffer)
        buffer.removeAll(keepingCapacity: true)
        guard buffer.capacity > 0, buffer.capacity <= Self.spareBytes, spareBuffers.count < Self.spareLimit else {
            buffer = []
            return
        }
        var spare: [UInt8] = []
        swap(&spare, &buffer)
        spareBuffers.append(spare)
    }

    private func written(_ connection: Connection, wrote: Bool) {
        switch connection.state {
        case .finishing: linger(connection)
        case .streams:
            guard let table = connection.streams else { return }
            takeEvents(connection, table)
            if table.session.isFinished {
                linger(connection)
            } else {
                if deadlines.kind(connection.slot) == .write { deadlines.clear(connection.slot) }
                updateDeadline(connection, table)
                // Without progress another turn would bring none either.
                if wrote, table.session.wantsWrite { markDirty(connection) }
                if connection.hasInput || connection.isReadable { advance(connection) }
            }
        case .reading where deadlines.kind(connection.slot) == .write:
            setDeadline(connection, connection.isIdle ? .idle : connection.parser?.phase == .body ? .body : .header)
            advance(connection)
        case .reading where connection.hasInput || connection.isReadable: advance(connection)
        case .answering where deadlines.kind(connection.slot) == .write: deadlines.clear(connection.slot)
        default: break
        }
    }

    /// Closing with unread bytes would make the kernel reset the connection, and the peer might lose the answer.
    private func linger(_ connection: Connection) {
        if let tls = connection.tls {
            tls.close()
            var last: [UInt8] = []
            tls.takeCiphertext(into: &last)
            _ = try? connection.socket.write(last.span)
        }
        connection.dropInput()
        connection.socket.finishWriting()
        if connection.hasEnded { return drop(connection) }
        connection.state = .lingering
        setDeadline(connection, .linger)
        if connection.isReadable { advance(connection) }
    }
}
