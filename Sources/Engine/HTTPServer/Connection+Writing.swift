import EventLoop
import HTTP2
import Linux
import Shares
import TLS

// Moves bytes from the protocol through TLS to the socket.
extension Connection {
    /// The size of a batch of HTTP/2 frames. The last frame may exceed it by its own length.
    static let outboundBytes = 32_768

    private enum FlushOutcome { case done, blocked, failed }

    func flush(on server: isolated HTTPServer) {
        var bytes: [UInt8] = []
        swap(&bytes, &wire)
        switch write(&bytes, on: server) {
        case .done:
            let wasBlocked = releaseBlocked(on: server)
            let wrote = !bytes.isEmpty
            wireOffset = 0
            server.buffers.recycle(&bytes)
            written(wrote, wasBlocked, on: server)
        case .blocked:
            swap(&bytes, &wire)
            isBlocked = true
            if stage != .open || webSocket == nil { server.setDeadline(self, .write) }
            holdBlocked(on: server)
        case .failed:
            wipe(&bytes)
            close(on: server)
        }
    }

    private func write(_ bytes: inout [UInt8], on server: isolated HTTPServer) -> FlushOutcome {
        guard encrypt(into: &bytes, on: server) else { return .failed }
        do throws(Errno) {
            while wireOffset < bytes.count {
                guard let count = try socket.write(bytes.span.extracting(droppingFirst: wireOffset)) else { return .blocked }
                wireOffset += count
            }
        } catch {
            return .failed
        }
        return .done
    }

    private func written(_ wrote: Bool, _ wasBlocked: Bool, on server: isolated HTTPServer) {
        switch stage {
        case .finishing: linger(on: server)
        case .open:
            switch role {
            case .http1(let http1): http1.written(wasBlocked, on: server)
            case .http2(let http2): http2.written(wrote, on: server)
            case .webSocket, .none: break
            }
        case .lingering, .closed: break
        }
    }

    /// Charges bytes that the peer does not read. A peer over its share loses the connection.
    private func holdBlocked(on server: isolated HTTPServer) {
        switch role {
        case .none, .webSocket: return
        case .http2(let http2):
            if http2.isAnswering { server.stalled.add(id.slot, owners.payer, nowMs: server.loop.now) }
        case .http1:
            guard blockedBytes == nil else { return }
            do throws(Shortage) {
                blockedBytes = try server.configuration.shares.charge(.streamBytes, queuedBytes, to: Owners(owners.payer))
            } catch {
                server.statistics.refusals += 1
                socket.resetOnClose()
                close(on: server)
            }
        }
    }

    /// - Returns: true if there were such bytes.
    @discardableResult func releaseBlocked(on server: isolated HTTPServer) -> Bool {
        guard let charge = blockedBytes.take() else { return false }
        server.configuration.shares.refund(charge)
        return true
    }

    func decrypt(_ ciphertext: Span<UInt8>, _ tls: TLSSession, on server: isolated HTTPServer) {
        let wasReady = tls.state != .handshaking
        do throws(TLSError) {
            try withInput { (input) throws(TLSError) in
                server.buffers.lend(to: &input)
                input.reserveWiping(ciphertext.count)
                try tls.receive(ciphertext, into: &input)
            }
        } catch {
            // A TLS alert may wait to be sent.
            finish(on: server)
            if isBlocked { server.setDeadline(self, .write) }
            if !wasReady { server.statistics.refusals += 1 }
        }
        server.warm(self)
        if tls.hasCiphertext { server.flushAtEndOfTurn(self) }
        if !wasReady, tls.state == .established {
            server.endHandshake(self)
            if tls.negotiatedProtocol == "h2" { return HTTP2Connection.begin(on: self, server) }
            server.setDeadline(self, .idle)
            if let overflow { http1?.refuse(overflow, on: server) }
        }
        if tls.state == .closed, !hasInput { end(on: server) }
    }

    /// Moves the turn's output to the end of `bytes`, encrypted if the connection uses TLS.
    /// - Returns: false if the connection has failed.
    private func encrypt(into bytes: inout [UInt8], on server: isolated HTTPServer) -> Bool {
        guard let tls else {
            withOutput { output in
                if bytes.isEmpty {
                    swap(&bytes, &output)
                } else {
                    bytes.reserveWiping(output.count)
                    bytes.append(contentsOf: output)
                    wipe(&output)
                    output.removeAll(keepingCapacity: true)
                }
            }
            return true
        }
        server.buffers.lend(to: &bytes)
        tls.takeCiphertext(into: &bytes)
        // A peer that has closed its direction still reads.
        if let http2, tls.state == .established || tls.state == .closed {
            var frames: [UInt8] = []
            swap(&frames, &server.outbound)
            defer {
                wipe(&frames)
                frames.removeAll(keepingCapacity: true)
                swap(&frames, &server.outbound)
            }
            guard (try? http2.session.takeOutbound(into: &frames, limit: Self.outboundBytes)) != nil else { return false }
            guard frames.isEmpty || (try? tls.send(frames.span, into: &bytes)) != nil else { return false }
        }
        server.warm(self)
        return withOutput { output in
            guard !output.isEmpty else { return true }
            defer { server.buffers.recycle(&output) }
            return (try? tls.send(output.span, into: &bytes)) != nil
        }
    }
}

/// Buffers shared by busy connections. An idle connection holds none.
struct BufferPool {
    private static let limit = 64
    private static let bytes = 16_384

    private var spare: [[UInt8]] = []

    /// Lends a spare buffer if `buffer` has no storage.
    mutating func lend(to buffer: inout [UInt8]) {
        if buffer.capacity == 0, let room = spare.popLast() { buffer = room }
    }

    /// Zeroes `buffer`, which may hold capabilities, and returns it to the pool.
    mutating func recycle(_ buffer: inout [UInt8]) {
        wipe(&buffer)
        buffer.removeAll(keepingCapacity: true)
        guard buffer.capacity > 0, buffer.capacity <= Self.bytes, spare.count < Self.limit else {
            buffer = []
            return
        }
        var room: [UInt8] = []
        swap(&room, &buffer)
        spare.append(room)
    }
}
