import EventLoop
import Linux
import TLS

/// A connection a client opened, with TLS or without. It lives on its loop's thread; the actor that made it awaits its bytes.
final class ClientStream: EventSource {
    private let loop: EventLoop
    private let socket: Socket
    private let tls: TLSSession?
    private var registration: Registration?
    private var waiter: CheckedContinuation<Void, Never>?
    private var output: [UInt8] = []
    private var outputOffset = 0
    private var plaintext: [UInt8] = []
    private var failure: ClientError?
    /// All that the peer sent was read.
    private(set) var hasEnded = false
    /// The peer sends no more than what is there to be read.
    private var isPeerFinished = false
    /// Monotonic ms after which every wait fails.
    var deadlineMs = UInt64.max

    /// Connects to the first address that answers, and shakes hands.
    static func open(_ origin: Origin, tls: TLSContext?, loop: EventLoop, deadlineMs: UInt64) async throws(ClientError)
        -> ClientStream
    {
        if origin.isSecure, tls == nil { throw .noTrust }
        var last = ClientError.timedOut
        for address in try await origin.resolve() {
            do throws(ClientError) {
                let session: TLSSession?
                do throws(TLSError) {
                    session = origin.isSecure ? try TLSSession(connecting: tls!, to: origin.host) : nil
                } catch {
                    throw .tls(error)
                }
                let stream = try ClientStream(address, tls: session, loop: loop)
                stream.deadlineMs = deadlineMs
                do throws(ClientError) {
                    try await stream.connect()
                    return stream
                } catch {
                    stream.close()
                    throw error
                }
            } catch {
                last = error
                if error == .timedOut { break }
            }
        }
        throw last
    }

    private init(_ address: SocketAddress, tls: TLSSession?, loop: EventLoop) throws(ClientError) {
        self.loop = loop
        self.tls = tls
        do throws(Errno) {
            socket = try Socket.connect(to: address)
            registration = try loop.add(socket.raw, [.read, .write, .peerFinished, .onChange], self)
        } catch {
            throw .unreachable(error)
        }
    }

    private func connect() async throws(ClientError) {
        // Writable once connected; the first event tells how that ended.
        try await wait()
        if let error = socket.pendingError() { throw .unreachable(error) }
        guard let tls else { return }
        while tls.state == .handshaking {
            flush()
            if try !receive() { try await wait() }
        }
        flush()
    }

    /// Sends bytes, now or when the socket takes them.
    func write(_ bytes: [UInt8]) throws(ClientError) {
        if let failure { throw failure }
        guard let tls else {
            output.append(contentsOf: bytes)
            return flush()
        }
        do throws(TLSError) { try tls.send(bytes.span) } catch { throw .tls(error) }
        flush()
    }

    /// The next bytes; empty at the end of the stream.
    func read() async throws(ClientError) -> [UInt8] {
        while true {
            if !plaintext.isEmpty {
                var bytes: [UInt8] = []
                swap(&bytes, &plaintext)
                return bytes
            }
            if hasEnded { return [] }
            if try !receive() { try await wait() }
        }
    }

    /// Whether an idle connection takes another request: neither closed nor spoken on. Looks at the socket itself, since the event that tells of
    /// it may still wait in the loop.
    func isReusable() -> Bool {
        do throws(ClientError) {
            while try receive() {
                if hasEnded || !plaintext.isEmpty { return false }
            }
        } catch {
            return false
        }
        return !isPeerFinished
    }

    /// Ends the connection; a read that waits fails.
    func close() {
        guard let registration else { return }
        tls?.close()
        flush()
        failure = failure ?? .closedEarly
        loop.remove(registration)
        self.registration = nil
        socket.finishWriting()
        wake()
    }

    func ready(_ events: Events) {
        if !events.isDisjoint(with: [.peerFinished, .hangup, .failure]) { isPeerFinished = true }
        if events.contains(.write) { flush() }
        wake()
    }

    /// - Returns: false when nothing is there to read now.
    private func receive() throws(ClientError) -> Bool {
        if let failure { throw failure }
        var buffer = [UInt8](repeating: 0, count: 32_768)
        let count: Int?
        do throws(Errno) {
            var span = buffer.mutableSpan
            count = try socket.read(into: &span)
        } catch {
            throw .unreachable(error)
        }
        guard let count else { return false }
        if count == 0 {
            // Without a close_notify the answer may have been cut off by someone on the way.
            if let tls, tls.state != .closed { throw .closedEarly }
            hasEnded = true
            return true
        }
        guard let tls else {
            plaintext.append(contentsOf: buffer[..<count])
            return true
        }
        do throws(TLSError) { try tls.receive(buffer.span.extracting(first: count), into: &plaintext) } catch {
            flush()
            throw .tls(error)
        }
        if tls.state == .closed { hasEnded = true }
        return true
    }

    private func flush() {
        tls?.takeCiphertext(into: &output)
        do throws(Errno) {
            while outputOffset < output.count, let count = try socket.write(output.span.extracting(droppingFirst: outputOffset)) {
                outputOffset += count
            }
            guard outputOffset == output.count else { return }
            output = []
            outputOffset = 0
        } catch {
            // An answer may have come before the peer stopped reading: reading finds out.
            output = []
            outputOffset = 0
        }
    }

    private func wait() async throws(ClientError) {
        if let failure { throw failure }
        let now = Clock.monotonicMs
        guard now < deadlineMs else { throw .timedOut }
        precondition(waiter == nil, "one reader at a time")
        let timer = deadlineMs == .max ? nil : loop.after(deadlineMs - now) { self.wake() }
        await withCheckedContinuation { waiter = $0 }
        if let timer { loop.cancel(timer) }
        if let failure { throw failure }
        if Clock.monotonicMs >= deadlineMs { throw .timedOut }
    }

    private func wake() {
        waiter?.resume()
        waiter = nil
    }
}
