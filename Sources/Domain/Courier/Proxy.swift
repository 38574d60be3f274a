import HTTP1
import Linux
public import Sealing
import Sodium
import Synchronization

/// An HTTP proxy that opens a tunnel to a push service (CONNECT, RFC 9110 section 9.3.6). TLS inside the tunnel is with the service.
public struct Proxy: Sendable, Equatable {
    public let endpoint: Endpoint
    /// `USER:PASSWORD` for the scheme Basic (RFC 7617). Nil if the proxy requires none.
    let credentials: Secret?

    public init(_ endpoint: Endpoint, credentials: Secret? = nil) {
        self.endpoint = endpoint
        self.credentials = credentials
    }

    /// Appends the request for a tunnel. With credentials, wipe the buffer after use.
    /// - Parameter authority: host and port.
    func writeRequest(for authority: String, to buffer: inout [UInt8]) {
        let head = Array("CONNECT \(authority) HTTP/1.1\r\nHost: \(authority)\r\n".utf8)
        let name = Array("Proxy-Authorization: Basic ".utf8)
        let count = credentials.map { name.count + Base64.standard.encodedCount($0.count) + 2 } ?? 0
        // An array that grows leaves a copy behind.
        buffer.reserveCapacity(buffer.count + head.count + count + 2)
        buffer += head
        if let credentials {
            var text = [UInt8](repeating: 0, count: Base64.standard.encodedCount(credentials.count))
            credentials.withBytes { bytes in
                var room = text.mutableSpan
                Base64.standard.encode(bytes, into: &room)
            }
            buffer += name
            buffer += text
            Sodium.wipe(&text)
            buffer += [0x0D, 0x0A]
        }
        buffer += [0x0D, 0x0A]
    }
}

/// The addresses of a proxy that gets addresses instead of names. They are looked up with each endpoint.
final class ProxyAddress: Sendable {
    private let endpoint: Endpoint
    /// The one to use comes first.
    private let found = Mutex<[SocketAddress]>([])

    init(_ proxy: Proxy) { endpoint = proxy.endpoint }

    /// The address to connect to. Nil if the proxy's name was never resolved.
    var current: SocketAddress? { found.withLock(\.first) }

    /// May block.
    func resolve(_ resolver: (Endpoint) -> [SocketAddress]) {
        let addresses = resolver(endpoint)
        guard !addresses.isEmpty else { return }
        found.withLock { if Set($0) != Set(addresses) { $0 = addresses } }
    }

    /// Puts an address last that didn't answer: a proxy may listen on only one of its name's addresses.
    func failed(_ address: SocketAddress) {
        found.withLock { if $0.first == address { $0.append($0.removeFirst()) } }
    }
}

/// Why a proxy opened no tunnel.
enum ProxyFault: Error, Sendable, Equatable {
    case unresolved
    case unreachable(Errno)
    case closed
    case silent
    /// The answer isn't HTTP/1, or its header lines are too long.
    case malformed
    /// The status of its answer.
    case refused(UInt16)
}

extension ProxyFault: CustomStringConvertible {
    var description: String {
        switch self {
        case .unresolved: "the proxy's host name can't be resolved"
        case .unreachable(let error): "the proxy can't be reached (\(error))"
        case .closed: "the proxy closed the connection without an answer"
        case .silent: "the proxy did not open a connection in time"
        case .malformed: "the proxy's answer to CONNECT is not HTTP, or too long"
        case .refused(403): "the proxy forbids the connection (403)"
        // Tinyproxy answers 401 to a wrong password.
        case .refused(let status) where status == 407 || status == 401:
            "the proxy requires a user and password, or refuses those of --apns-proxy-password (\(status))"
        case .refused(let status) where status >= 500: "the proxy can't connect (\(status))"
        case .refused(let status): "the proxy refuses to connect (\(status))"
        }
    }
}

/// Waits for a proxy's answer to CONNECT.
struct TunnelAnswer {
    private let parser: ResponseParser

    init() {
        parser = ResponseParser(limits: MessageLimits(bodyBytes: 0))
        // A tunnel begins after the head, whatever its header lines say. The body of a refusal isn't needed.
        parser.expectNoBody(true)
    }

    /// Parses the next bytes.
    /// - Returns: how many of them belong to the answer; the others are from the tunnel. Nil while the answer is incomplete.
    func parse(_ bytes: Span<UInt8>) throws(ProxyFault) -> Int? {
        switch parser.parse(bytes) {
        case .incomplete: return nil
        case .failed: throw .malformed
        case .complete(let consumed):
            let status = parser.takeMessage().status
            guard (200...299).contains(status) else { throw .refused(status) }
            return consumed
        }
    }
}
