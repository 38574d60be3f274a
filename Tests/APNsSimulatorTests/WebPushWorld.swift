import EventLoop
import HTTP2
import Linux
import Sodium
import TLS
import Testing
import WebPush

@testable import APNsSimulator

/// The texts of a subscription, as a browser hands them over.
struct Browser: Sendable {
    let dialect: PushServiceDialect
    let endpoint: String
    let p256dh: [UInt8]
    let auth: [UInt8]

    init(_ dialect: PushServiceDialect, _ json: [UInt8]) throws {
        self.dialect = dialect
        let value = try #require(JSON(parsing: json))
        #expect(value["expirationTime"] == .null)
        endpoint = try #require(value["endpoint"]?.text)
        let keys = (try #require(value["keys"]?["p256dh"]?.text), try #require(value["keys"]?["auth"]?.text))
        p256dh = try #require(Base64.url.decode(keys.0))
        auth = try #require(Base64.url.decode(keys.1))
    }

    /// Scheme, host and port.
    var origin: String { String(endpoint.prefix(endpoint.count - path.count)) }
    var path: String { "/" + endpoint.dropFirst("https://".count).split(separator: "/").dropFirst().joined(separator: "/") }
    var id: String { String(endpoint.split(separator: "/").last ?? "") }

    func encrypt(_ text: String) throws -> [UInt8] {
        try MessageEncryption.encrypt(Array(text.utf8), to: p256dh.span, auth: auth.span)
    }
}

/// An application server with its VAPID key.
struct Sender {
    static let contact = "mailto:push@example.org"
    static let shown = #"{"web_push":8030,"notification":{"title":"Chat"}}"#
    let key: ES256.PrivateKey
    let vapid: VAPIDKey

    init() throws {
        key = try ES256.PrivateKey()
        vapid = try VAPIDKey(key)
    }

    /// The header of a valid request.
    func authorization(_ origin: String, contact: String = contact) throws -> String {
        let token = try vapid.token(for: origin, contact: contact, expiresS: Clock.wallMs / 1_000 + 3_600)
        return "vapid t=\(token), k=\(vapid.publicKey)"
    }

    /// A header with any claims.
    func authorization(claims: String, head: String = #"{"typ":"JWT","alg":"ES256"}"#) throws -> String {
        let signed = Base64URL.encode(Array(head.utf8)) + "." + Base64URL.encode(Array(claims.utf8))
        let message = Array(signed.utf8)
        let signature = try key.sign(message.span)
        return "vapid t=\(signed).\(Base64URL.encode(signature)), k=\(vapid.publicKey)"
    }

    /// The header fields of a valid request, with changes. A nil removes a field.
    func fields(to browser: Browser, _ changes: [String: String?] = [:]) throws -> [(String, String)] {
        var fields = [
            "authorization": try authorization(browser.origin), "ttl": "60", "urgency": "high", "content-encoding": "aes128gcm",
        ]
        for (name, value) in changes { fields[name] = value }
        return fields.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }
}

extension World {
    func subscribe(_ dialect: PushServiceDialect, _ sender: Sender, origin: String? = nil) async throws -> Browser {
        try Browser(dialect, try await simulator.subscribe(dialect, key: sender.vapid.publicKey, origin: origin))
    }

    static func headers(to browser: Browser, _ fields: [(String, String)], method: String = "POST", path: String? = nil)
        -> HTTP2Headers
    {
        var headers = HTTP2Headers(capacity: 1024)
        headers.append(":method", method)
        headers.append(":scheme", "https")
        headers.append(":path", path ?? browser.path)
        headers.append(":authority", String(browser.origin.dropFirst("https://".count)))
        for (name, value) in fields { headers.append(name, value) }
        return headers
    }

    /// Sends a message over HTTP/2 on a new connection.
    func post(
        _ text: String = Sender.shown, to browser: Browser, _ sender: Sender, _ changes: [String: String?] = [:]
    ) async throws -> TestResponse {
        let headers = Self.headers(to: browser, try sender.fields(to: browser, changes))
        return try await client().send(headers, try browser.encrypt(text))
    }

    func http1Client() async throws -> HTTP1TestClient {
        try HTTP1TestClient(to: address, certificate: certificate.certificate, loop: loop)
    }
}

/// An HTTP/1.1 connection to the simulator, which reads and writes bytes as they are.
actor HTTP1TestClient: LoopActor {
    nonisolated let loop: EventLoop
    private let socket: Socket
    private let tls: TLSSession
    private var plaintext: [UInt8] = []
    private(set) var isClosed = false

    init(to address: SocketAddress, certificate: [UInt8], alpn: [String] = ["http/1.1"], loop: EventLoop) throws {
        self.loop = loop
        socket = try Socket.connect(to: address)
        tls = try TLSSession(
            connecting: TLSContext.client(trust: .authorities(certificate), alpn: alpn), to: "127.0.0.1")
    }

    static func request(to browser: Browser, _ fields: [(String, String)], _ body: [UInt8]) -> [UInt8] {
        var text = "POST \(browser.path) HTTP/1.1\r\nHost: \(browser.origin.dropFirst("https://".count))\r\n"
        for (name, value) in fields { text += "\(name): \(value)\r\n" }
        return Array((text + "Content-Length: \(body.count)\r\n\r\n").utf8) + body
    }

    /// Sends bytes, and reads until `isEnough` or the end.
    func exchange(_ bytes: [UInt8], until isEnough: (String) -> Bool = { _ in false }) async throws -> String {
        while tls.state == .handshaking { try await turn() }
        if !bytes.isEmpty { try tls.send(bytes.span) }
        while !isClosed, !isEnough(String(decoding: plaintext, as: UTF8.self)) { try await turn() }
        defer { plaintext = [] }
        return String(decoding: plaintext, as: UTF8.self)
    }

    /// Sends a request, and reads an answer without a body, or with a JSON object.
    func send(_ bytes: [UInt8]) async throws -> TestResponse {
        let text = try await exchange(bytes) {
            $0.contains("content-length: 0\r\n\r\n") || $0.hasSuffix("}")
                || $0.hasSuffix("\n") && $0.contains("\r\n\r\n") && !$0.hasSuffix("\r\n\r\n")
        }
        let parts = text.split(separator: "\r\n\r\n", maxSplits: 1, omittingEmptySubsequences: false)
        var lines = parts[0].split(separator: "\r\n")
        guard !lines.isEmpty else { throw TestFailure.connectionClosed }
        var answer = TestResponse(status: Int(lines.removeFirst().split(separator: " ")[1]) ?? 0)
        for line in lines {
            let pair = line.split(separator: ": ", maxSplits: 1)
            answer.headers[String(pair[0])] = pair.count == 2 ? String(pair[1]) : ""
        }
        answer.body = parts.count == 2 ? String(parts[1]) : ""
        return answer
    }

    private func turn() async throws {
        var ciphertext: [UInt8] = []
        tls.takeCiphertext(into: &ciphertext)
        var sent = 0
        do {
            if let error = socket.pendingError() { throw error }
            while sent < ciphertext.count {
                guard let count = try socket.write(ciphertext.span.extracting(sent..<ciphertext.count)) else {
                    try await loop.sleep(1)
                    continue
                }
                sent += count
            }
            var buffer = [UInt8](repeating: 0, count: 1 << 16)
            var room = buffer.mutableSpan
            guard let count = try socket.read(into: &room) else { return try await loop.sleep(1) }
            if count == 0 { isClosed = true } else { try tls.receive(buffer.span.extracting(0..<count), into: &plaintext) }
            if tls.state == .closed { isClosed = true }
        } catch let error as Errno {
            guard error.isConnectionLost else { throw error }
            isClosed = true
        }
    }
}
