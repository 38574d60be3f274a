import Foundation
import MayflyClient

/// HTTP/1.1 and WebSockets over plain TCP on loopback, for tests and the example on Linux.
public final class SocketTransport: Transport {
    private let freezer = Freezer()

    public init() {}

    /// Whether all sockets stop reading and answering, as in an app that iOS suspended.
    public func freeze(_ isFrozen: Bool) { freezer.isFrozen = isFrozen }

    public func send(_ request: TransportRequest) async throws -> TransportResponse {
        try await inThread {
            let connection = try Connection(request.url)
            let path = request.url.path(percentEncoded: true)
            var head = "\(request.method) \(path) HTTP/1.1\r\nHost: \(connection.host)\r\nConnection: close\r\n"
            for (name, value) in request.headers { head += "\(name): \(value)\r\n" }
            if let body = request.body { head += "Content-Length: \(body.count)\r\n" }
            try connection.write(Data((head + "\r\n").utf8) + (request.body ?? Data()))
            let (response, rest, _) = try connection.readHead()
            return TransportResponse(
                status: response.status, contentType: response.contentType, retryAfter: response.retryAfter,
                body: try connection.readToEnd(rest))
        }
    }

    public func connect(_ url: URL) async throws -> any WebSocket {
        try await inThread { [freezer] in
            let connection = try Connection(url)
            let key = Data((0..<16).map { _ in UInt8.random(in: 0...255) }).base64EncodedString()
            try connection.write(
                Data(
                    """
                    GET \(url.path(percentEncoded: true)) HTTP/1.1\r\nHost: \(connection.host)\r\nConnection: Upgrade\r\nUpgrade: websocket\r
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \(key)\r\n\r\n
                    """.utf8))
            var (response, rest, length) = try connection.readHead()
            guard response.status == 101 else {
                // The connection stays open for another request.
                response.body = try connection.readToEnd(rest, length: length)
                throw WebSocketRefused(response)
            }
            connection.wait(forever: true)
            return SocketWebSocket(connection, rest: rest, freezer: freezer)
        }
    }

    private func inThread<Result: Sendable>(_ work: @escaping @Sendable () throws -> Result) async throws -> Result {
        try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread { continuation.resume(with: Swift.Result { try work() }) }
        }
    }
}

final class Freezer: @unchecked Sendable {
    private let lock = NSLock()
    private var value = false

    var isFrozen: Bool {
        get { lock.withLock { value } }
        set { lock.withLock { value = newValue } }
    }
}

/// One TCP connection, with blocking calls.
final class Connection: Sendable {
    private let descriptor: Int32
    let host: String

    init(_ url: URL) throws {
        guard let port = url.port, url.host != nil else { throw MayflyError.unreachable("no port") }
        host = "127.0.0.1:\(port)"
        #if canImport(Darwin)
            descriptor = socket(AF_INET, SOCK_STREAM, 0)
            var yes: Int32 = 1
            setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &yes, socklen_t(MemoryLayout<Int32>.size))
        #else
            descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        #endif
        wait(forever: false)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 else { throw MayflyError.unreachable("connect: errno \(errno)") }
    }

    deinit { close(descriptor) }

    /// Reads wait for 20 seconds, or forever.
    func wait(forever: Bool) {
        var time = timeval(tv_sec: forever ? 0 : 20, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
    }

    func write(_ data: Data) throws {
        var rest = data[...]
        while !rest.isEmpty {
            #if canImport(Darwin)
                let flags: Int32 = 0
            #else
                let flags = Int32(MSG_NOSIGNAL)
            #endif
            let count = rest.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, flags) }
            guard count > 0 else { throw MayflyError.noAnswer("send: errno \(errno)") }
            rest = rest.dropFirst(count)
        }
    }

    /// Returns at most 16 KiB; nothing at the end.
    func read() throws -> Data {
        var buffer = [UInt8](repeating: 0, count: 16_384)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        guard count >= 0 else { throw MayflyError.noAnswer("recv: errno \(errno)") }
        return Data(buffer.prefix(count))
    }

    /// Reads the rest of a body, to the connection's end if it has no length.
    func readToEnd(_ start: Data, length: Int? = nil) throws -> Data {
        var all = start
        while all.count < length ?? .max, case let data = try read(), !data.isEmpty {
            all += data
            guard all.count <= TransportResponse.largestBody else { throw MayflyError.unexpectedAnswer(status: 0) }
        }
        return all
    }

    /// Returns the head of an answer, bytes after it, and the length of its body.
    func readHead() throws -> (TransportResponse, Data, length: Int?) {
        var data = Data()
        while true {
            if let end = data.range(of: Data("\r\n\r\n".utf8)) {
                let lines = String(decoding: data[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
                var fields: [String: String] = [:]
                for line in lines.dropFirst() {
                    guard let colon = line.firstIndex(of: ":") else { continue }
                    fields[line[..<colon].lowercased()] = line[line.index(after: colon)...].trimmingCharacters(in: .whitespaces)
                }
                guard let status = lines[0].split(separator: " ").dropFirst().first.flatMap({ Int($0) }) else { break }
                let response = TransportResponse(
                    status: status, contentType: fields["content-type"], retryAfter: fields["retry-after"], body: Data())
                return (response, Data(data[end.upperBound...]), fields["content-length"].flatMap { Int($0) })
            }
            let more = try read()
            if more.isEmpty { break }
            data += more
        }
        throw MayflyError.noAnswer("the connection ended")
    }

    func shutDown() { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }
}
