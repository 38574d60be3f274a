import API
import AuditPage
import DemoPage
import EventLoop
import HTTP1
import HTTPServer
import JSON
import Linux
import Sealing
import Storage
import Synchronization
import WebSocket

/// The public listener of `mayfly demo --stay`: the broker, and the demo page under `/demo/`.
///
/// Only browsers on this machine get the page, or on the one that a container's port is published to, and only the page gets its data: pushes that
/// reached the simulator, and counts of what is stored.
struct DemoHandler: HTTPHandler {
    let broker: PublicHandler
    let site: DemoSite

    func respond(to request: HTTPRequest) async -> HTTPResponse {
        guard let path = demoPath(request) else { return await broker.respond(to: request) }
        switch (request.method, path) {
        case (.get, ""):
            return HTTPResponse(
                status: 308, contentType: .text, headers: [.init("Location", "demo/")], body: Array("The demo is at demo/\n".utf8)
            )
        case (.get, "/pushes") where request.isFromItsPage: return await site.pushes()
        case (.get, "/holdings") where request.isFromItsPage: return site.holdings()
        default:
            if request.isFromItsPage, let (phone, path) = site.phone(path) { return await site.call(phone, path, request) }
            guard request.method == .get, let file = DemoPage.file(at: String(path.dropFirst())) else {
                return await broker.respond(to: request)
            }
            return Self.answer(file)
        }
    }

    private static func answer(_ file: AuditPage.File) -> HTTPResponse {
        HTTPResponse(
            status: 200, contentType: .other(file.contentType),
            headers: [
                .init("Cache-Control", "no-cache"), .init("Content-Security-Policy", AuditPage.contentSecurityPolicy),
                .init("Referrer-Policy", "no-referrer"), .init("X-Content-Type-Options", "nosniff"),
            ], body: file.bytes)
    }

    /// The path after `/demo`. Nil if the request is the broker's, or comes from another machine, also through a proxy, or under another name than
    /// loopback's, which may be another site's that points here.
    private func demoPath(_ request: HTTPRequest) -> Substring? {
        let path = request.path
        guard path == "/demo" || path.hasPrefix("/demo/"), request.remote.isLoopback || site.isInContainer,
            request.namesLoopback, request.header("x-forwarded-for") == nil, request.header("forwarded") == nil
        else { return nil }
        return path.dropFirst("/demo".count)
    }

    private func phone(_ request: HTTPRequest) -> DemoPhone? {
        guard let path = demoPath(request), request.isFromItsPage, let (phone, rest) = site.phone(path), rest == "/ws" else {
            return nil
        }
        return phone
    }

    func shouldUpgrade(_ request: HTTPRequest) -> Bool { phone(request) != nil || broker.shouldUpgrade(request) }

    func opened(_ socket: WebSocketHandle, request: HTTPRequest) async {
        guard let phone = phone(request) else { return await broker.opened(socket, request: request) }
        site.sockets.withLock { $0[socket] = phone }
        await phone.opened(socket, broker: "ws://\(site.address)/ws")
    }

    func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        guard let phone = site.sockets.withLock({ $0[socket] }) else { return await broker.received(message, on: socket) }
        await phone.received(message.withText { text in text.indices.map { text[$0] } }, on: socket)
    }

    func ponged(_ socket: WebSocketHandle, number: UInt64) async { await broker.ponged(socket, number: number) }

    func closed(_ socket: WebSocketHandle, code: CloseCode) async {
        guard let phone = site.sockets.withLock({ $0.removeValue(forKey: socket) }) else {
            return await broker.closed(socket, code: code)
        }
        await phone.closed(socket, code: code)
    }
}

extension HTTPRequest {
    /// True if a page of this listener sent the request. Browsers add one of these headers, and pages can't set them.
    fileprivate var isFromItsPage: Bool {
        if let site = header("sec-fetch-site") { return site == "same-origin" }
        guard let origin = header("origin"), let host = header("host") else { return false }
        return origin == "http://\(host)"
    }
}

/// The demo page's phones, and its views of the simulator and the store.
final class DemoSite: Sendable {
    private let control: String
    private let client: HTTPClient
    /// True if the broker listens beyond loopback, as it must for a published port. Cleartext there was allowed by name.
    let isInContainer: Bool
    private let service = Mutex<Service?>(nil)
    private let phones = Mutex<[String: DemoPhone]>([:])
    /// The page's open WebSockets. All others are the broker's.
    let sockets = Mutex<[WebSocketHandle: DemoPhone]>([:])

    /// - Parameter control: URL of the simulator's control listener.
    init(control: String, client: HTTPClient, isInContainer: Bool) {
        (self.control, self.client, self.isInContainer) = (control, client, isInContainer)
    }

    /// Serves the page for this broker from now on.
    func begin(_ service: Service) { self.service.withLock { $0 = service } }

    /// The broker's address. Empty until `begin`.
    var address: String { service.withLock { $0.map { "\($0.address)" } } ?? "" }

    /// Returns the phone of a path `/phones/ID/…`, and the rest of the path; nil for other paths. A phone is made when its id, 16 characters, is first used.
    func phone(_ path: Substring) -> (phone: DemoPhone, path: String)? {
        let parts = path.split(separator: "/", maxSplits: 2)
        guard parts.count == 3, parts[0] == "phones", parts[1].utf8.count == 16 else { return nil }
        let phone = phones.withLock { phones in
            let id = String(parts[1])
            if let phone = phones[id] { return phone }
            let phone = DemoPhone(loop: client.loop)
            phones[id] = phone
            return phone
        }
        return (phone, "/\(parts[2])")
    }

    /// Answers `POST /suspend` and `POST /resume`; passes calls of the API on to the broker.
    func call(_ phone: DemoPhone, _ path: String, _ request: HTTPRequest) async -> HTTPResponse {
        switch (request.method, path) {
        case (.post, "/suspend"):
            await phone.suspend()
            return HTTPResponse(status: 204)
        case (.post, "/resume"):
            await phone.resume()
            return HTTPResponse(status: 204)
        default:
            guard await !phone.isSuspended else { return HTTPResponse(status: 503) }
            let bearer = request.header("authorization").map { [HTTPResponse.Header("Authorization", $0)] } ?? []
            let body = request.withBody { body in body.indices.map { body[$0] } }
            return await answer("http://\(address)\(path)", request.method, bearer, body)
        }
    }

    /// The pushes that the simulator accepted, as it lists them.
    func pushes() async -> HTTPResponse { await answer("\(control)/pushes") }

    private func answer(
        _ url: String, _ method: HTTP1.Method = .get, _ headers: [HTTPResponse.Header] = [], _ body: [UInt8] = []
    ) async -> HTTPResponse {
        do {
            let answer = try await client.send(url, method: method, headers: headers, body: body)
            return HTTPResponse(status: answer.status, contentType: .other(answer.contentType ?? "text/plain"), body: answer.body)
        } catch {
            return HTTPResponse(status: 502)
        }
    }

    /// Counts of what the broker stores, and the start of the oldest five minutes of which it still has the key.
    func holdings() -> HTTPResponse {
        guard let service = service.withLock({ $0 }), let store = try? StoreSnapshot(service.settings.state.database),
            let holdings = try? store.holdings(), let sealed = try? store.sealedTokens()
        else { return HTTPResponse(status: 503) }
        var json = JSONWriter()
        json.add("joinCodes", holdings.pendingCodes)
        json.add("oldestKey", timeMs: service.parts.state.keys.baseEpoch.startMs)
        json.add("sealed", objects: sealed) { json, tokens in
            json.add("expiresAt", timeMs: tokens.expires)
            json.add("tokens", tokens.count)
            json.add("bytes", tokens.bytes)
        }
        return HTTPResponse(status: 200, contentType: .json, headers: [.init("Cache-Control", "no-store")], body: json.finish())
    }
}
