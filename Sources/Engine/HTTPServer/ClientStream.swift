import EventLoop
import Linux
import Synchronization
import TLS

/// A client's connection, with or without TLS. It runs on its loop's thread.
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
    /// The end of the stream was read.
    private(set) var hasEnded = false
    /// The peer has closed; unread bytes may be left.
    private var isPeerFinished = false
    private var isConnected = false
    /// Monotonic ms after which every wait fails.
    var deadlineMs = UInt64.max

    /// Connects to the first address that answers, and completes the TLS handshake.
    static func open(_ origin: Origin, tls: TLSContext?, loop: EventLoop, deadlineMs: UInt64) async throws(ClientError)
        -> ClientStream
    {
        if origin.isSecure, tls == nil { throw .noTrust }
        var last = ClientError.timedOut
        for address in try await origin.resolve(on: loop, deadlineMs: deadlineMs) {
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
        // The socket becomes writable when connected. The first event reports the result.
        try await wait()
        if let error = socket.pendingError() { throw .unreachable(error) }
        isConnected = true
        guard let tls else { return }
        while tls.state == .handshaking {
            flush()
            if try !receive() { try await wait() }
        }
        flush()
    }

    /// Sends bytes, now or when the socket accepts them.
    func write(_ bytes: [UInt8]) throws(ClientError) {
        if let failure { throw failure }
        guard let tls else {
            output.append(contentsOf: bytes)
            return flush()
        }
        do throws(TLSError) { try tls.send(bytes.span) } catch { throw .tls(error) }
        flush()
    }

    /// Returns the next bytes, empty at the end of the stream.
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

    /// Whether an idle connection can carry another request: open, and without unexpected input. Reads the socket itself, because the event may still
    /// wait in the loop.
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

    /// Closes the connection. A waiting read fails.
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

    /// - Returns: false if nothing can be read now.
    private func receive() throws(ClientError) -> Bool {
        if let failure { throw failure }
        // A peer that never lets us wait must not outlast the deadline either.
        if Clock.monotonicMs >= deadlineMs { throw .timedOut }
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
            // Without a close_notify the response may have been truncated by an attacker.
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
        // A write would take the error of a failed connect from `connect`, which reports it.
        guard isConnected else { return }
        tls?.takeCiphertext(into: &output)
        do throws(Errno) {
            while outputOffset < output.count, let count = try socket.write(output.span.extracting(droppingFirst: outputOffset)) {
                outputOffset += count
            }
            guard outputOffset == output.count else { return }
            output = []
            outputOffset = 0
        } catch {
            // The response may have arrived before the peer stopped reading, so let the read find out.
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

/// A URL's scheme, host and port. Connections are pooled by origin.
struct Origin: Hashable {
    let isSecure: Bool
    /// Without brackets.
    let host: String
    let port: UInt16

    /// Splits an absolute URL. The target is path and query without the fragment. User names are refused.
    static func parse(_ url: String) throws(ClientError) -> (origin: Origin, target: String) {
        guard let schemeEnd = url.utf8.firstRange(of: Array("://".utf8)) else { throw .badURL(url) }
        let isSecure: Bool
        switch url[..<schemeEnd.lowerBound].lowercased() {
        case "http", "ws": isSecure = false
        case "https", "wss": isSecure = true
        default: throw .badURL(url)
        }
        let rest = url[schemeEnd.upperBound...].prefix { $0 != "#" }
        let authority = rest.prefix { $0 != "/" && $0 != "?" }
        var target = String(rest[authority.endIndex...])
        if !target.hasPrefix("/") { target = "/" + target }
        guard target.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), !authority.contains("@") else { throw .badURL(url) }

        var host = authority
        var port: UInt16 = isSecure ? 443 : 80
        if let colon = authority.lastIndex(of: ":"), !authority[colon...].contains("]") {
            guard let number = UInt16(authority[authority.index(after: colon)...]) else { throw .badURL(url) }
            port = number
            host = authority[..<colon]
        }
        if host.hasPrefix("["), host.hasSuffix("]") { host = host.dropFirst().dropLast() }
        guard !host.isEmpty, host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { throw .badURL(url) }
        return (Origin(isSecure: isSecure, host: String(host), port: port), target)
    }

    /// The value of `Host`.
    var authority: String {
        let name = host.contains(":") ? "[\(host)]" : host
        return port == (isSecure ? 443 : 80) ? name : "\(name):\(port)"
    }

    /// Resolves the name on a new thread, because that blocks. Doesn't wait for a resolver that is slower than the deadline.
    func resolve(on loop: EventLoop, deadlineMs: UInt64) async throws(ClientError) -> [SocketAddress] {
        if let address = SocketAddress(numeric: host, port: port) { return [address] }
        let now = Clock.monotonicMs
        guard now < deadlineMs else { throw .timedOut }
        let answer = ResolverAnswer()
        let timer = loop.after(deadlineMs - now) { answer.give(.failure(.timedOut)) }
        let result = await withCheckedContinuation { continuation in
            answer.wait(continuation)
            let lookUp: @Sendable () -> Void = { [host, port] in
                answer.give(
                    Result { () throws(ResolutionError) in try SocketAddress.resolve(host: host, port: port) }
                        .mapError { .unresolved($0) })
            }
            do throws(Errno) {
                _ = try Thread.spawn(name: "resolver", lookUp)
            } catch {
                answer.give(.failure(.unreachable(error)))
            }
        }
        loop.cancel(timer)
        return try result.get()
    }
}

/// The first of two answers: the resolver's, or that it takes too long.
private final class ResolverAnswer: Sendable {
    typealias Addresses = Result<[SocketAddress], ClientError>

    private let waiting = Mutex<CheckedContinuation<Addresses, Never>?>(nil)

    func wait(_ continuation: CheckedContinuation<Addresses, Never>) { waiting.withLock { $0 = continuation } }

    func give(_ addresses: Addresses) {
        let first = waiting.withLock { waiting in
            defer { waiting = nil }
            return waiting
        }
        first?.resume(returning: addresses)
    }
}
