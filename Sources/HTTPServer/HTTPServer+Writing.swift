import EventLoop
import HTTP1
import HTTP2
import Linux
import TLS

// Writing, and ending connections after it.
extension HTTPServer {
    /// Frames of one HTTP/2 connection that are made at once. The last may reach beyond by its own length.
    static var outboundBytes: Int { 32_768 }
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

    func flush(_ connection: Connection) {
        guard encrypt(connection) else { return drop(connection) }
        do throws(Errno) {
            while connection.wireOffset < connection.wire.count {
                let written = try connection.socket.write(connection.wire.span.extracting(droppingFirst: connection.wireOffset))
                guard let written else {
                    connection.isBlocked = true
                    if connection.state != .webSocket { setDeadline(connection, .write) }
                    return
                }
                connection.wireOffset += written
            }
        } catch {
            return drop(connection)
        }
        recycle(connection)
        written(connection)
    }

    /// Moves the turn's output to the wire, through TLS if there is any.
    private func encrypt(_ connection: Connection) -> Bool {
        if let tls = connection.tls {
            if let session = connection.streams?.session, tls.state == .established {
                guard (try? session.takeOutbound(into: &outbound, limit: Self.outboundBytes)) != nil else { return false }
                defer {
                    wipe(&outbound)
                    outbound.removeAll(keepingCapacity: true)
                }
                guard outbound.isEmpty || (try? tls.send(outbound.span)) != nil else { return false }
            }
            if !connection.output.isEmpty {
                guard (try? tls.send(connection.output.span)) != nil else { return false }
                connection.dropOutput()
            }
            tls.takeCiphertext(into: &connection.wire)
        } else if connection.wire.isEmpty {
            swap(&connection.wire, &connection.output)
        } else {
            connection.wire.reserveWiping(connection.output.count)
            connection.wire.append(contentsOf: connection.output)
            connection.dropOutput()
        }
        return true
    }

    /// An idle connection holds no buffers; busy ones pass them around.
    private func recycle(_ connection: Connection) {
        connection.wireOffset = 0
        var buffer: [UInt8] = []
        swap(&buffer, &connection.wire)
        // Answers hold capabilities.
        wipe(&buffer)
        guard buffer.capacity > 0, buffer.capacity <= Self.spareBytes, spareBuffers.count < Self.spareLimit else { return }
        buffer.removeAll(keepingCapacity: true)
        spareBuffers.append(buffer)
    }

    private func written(_ connection: Connection) {
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
                if table.session.wantsWrite { markDirty(connection) }
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
            tls.takeCiphertext(into: &connection.wire)
            _ = try? connection.socket.write(connection.wire.span)
            connection.wire = []
        }
        connection.dropInput()
        connection.socket.finishWriting()
        if connection.hasEnded { return drop(connection) }
        connection.state = .lingering
        setDeadline(connection, .linger)
        if connection.isReadable { advance(connection) }
    }
}
