import EventLoop
import HTTP2
import Linux
import TLS

// Between the socket's bytes and the connection's, where there is TLS.
extension HTTPServer {
    /// Frames of one HTTP/2 connection that are made at once. The last may reach beyond by its own length.
    static var outboundBytes: Int { 32_768 }
    /// How long a connection without traffic keeps OpenSSL's buffers, 34 KB; taking them anew for each record costs a fifth of a request.
    private static var coolingMs: UInt64 { 1_000 }

    func decrypt(_ ciphertext: Span<UInt8>, _ connection: Connection) {
        guard let tls = connection.tls else { return }
        let wasReady = tls.state != .handshaking
        do throws(TLSError) {
            try connection.withInput { (input) throws(TLSError) in
                if input.isEmpty, let spare = spareBuffers.popLast() { input = spare }
                input.reserveWiping(ciphertext.count)
                try tls.receive(ciphertext, into: &input)
            }
        } catch {
            // An alert may wait to be sent.
            connection.state = .finishing
            if connection.isBlocked { setDeadline(connection, .write) }
            if !wasReady { statistics.refusals += 1 }
        }
        warm(connection)
        if tls.hasCiphertext || connection.state == .finishing { markDirty(connection) }
        if !wasReady, tls.state == .established {
            if tls.negotiatedProtocol == "h2" { return beginStreams(connection) }
            setDeadline(connection, .idle)
            if let overflow = connection.overflow { refuse(connection, overflow) }
        }
        if tls.state == .closed, !connection.hasInput { ended(connection) }
    }

    func encrypt(_ connection: Connection, _ tls: TLSSession, _ wire: inout [UInt8]) -> Bool {
        if wire.capacity == 0, let spare = spareBuffers.popLast() { wire = spare }
        tls.takeCiphertext(into: &wire)
        // A peer that has closed its own direction still reads.
        if let session = connection.streams?.session, tls.state == .established || tls.state == .closed {
            var frames: [UInt8] = []
            swap(&frames, &outbound)
            defer {
                wipe(&frames)
                frames.removeAll(keepingCapacity: true)
                swap(&frames, &outbound)
            }
            guard (try? session.takeOutbound(into: &frames, limit: Self.outboundBytes)) != nil else { return false }
            guard frames.isEmpty || (try? tls.send(frames.span, into: &wire)) != nil else { return false }
        }
        warm(connection)
        return connection.withOutput { output in
            guard !output.isEmpty else { return true }
            defer { recycle(&output) }
            return (try? tls.send(output.span, into: &wire)) != nil
        }
    }

    // MARK: OpenSSL's buffers

    /// The connection has traffic.
    private func warm(_ connection: Connection) {
        connection.isWarm = true
        guard !connection.isCooling else { return }
        connection.isCooling = true
        if cooling.isEmpty { loop.after(Self.coolingMs) { self.cool() } }
        cooling.append(connection.id)
    }

    /// Connections without traffic since the last time give their buffers back.
    private func cool() {
        var kept: [ConnectionID] = []
        for id in cooling {
            guard let connection = connection(id) else { continue }
            if connection.isWarm {
                connection.isWarm = false
                kept.append(id)
            } else {
                connection.isCooling = false
                connection.tls?.releaseBuffers()
            }
        }
        cooling = kept
        if !kept.isEmpty { loop.after(Self.coolingMs) { self.cool() } }
    }
}
