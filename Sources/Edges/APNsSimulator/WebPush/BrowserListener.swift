import HTTP1
import HTTPServer
import Vocabulary
import WebSocket

/// The listener for real browsers. Firefox calls it if its preference `dom.push.serverURL` names it.
struct BrowserListener: HTTPHandler {
    let simulator: APNsSimulator

    func respond(to request: HTTPRequest) async -> HTTPResponse {
        HTTPResponse(
            status: 426, contentType: .text, headers: [.init("Upgrade", "websocket")], body: Array("Use a WebSocket.\n".utf8))
    }

    func shouldUpgrade(_ request: HTTPRequest) -> Bool { request.method == .get }

    func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        let text = message.withText { [UInt8]($0) }
        guard let answer = await simulator.answer(text, from: socket) else { return }
        await socket.send(answer)
        // Messages that waited must come after the answer.
        if await simulator.resume(socket) { await socket.markJoined() }
    }

    func closed(_ socket: WebSocketHandle, code: CloseCode) async { await simulator.close(socket) }
}

extension APNsSimulator {
    fileprivate func answer(_ text: [UInt8], from socket: WebSocketHandle) -> [UInt8]? { browsers.answer(to: text, on: socket) }
    fileprivate func resume(_ socket: WebSocketHandle) -> Bool { browsers.resume(socket) }
    fileprivate func close(_ socket: WebSocketHandle) { browsers.close(socket) }
}

/// Mozilla's WebSocket protocol, as far as Firefox uses it. Source: autopush-rs, `autoconnect-common/src/protocol.rs`. Used only on the loop's
/// thread.
final class Browsers {
    /// One browser, which may reconnect.
    private final class Profile {
        var socket: WebSocketHandle?
        /// Its messages wait until `hello` is answered.
        var isGreeted = false
        /// The end of the last message that is sent.
        var sending: Task<Void, Never>?
        /// By channel id.
        var subscriptions: [String: WebPushSubscription] = [:]
    }

    private unowned let face: WebPushFace
    private let wallMs: @Sendable () -> UInt64
    /// By the id that Firefox keeps, the UAID.
    private var profiles: [String: Profile] = [:]
    private var open: [WebSocketHandle: Profile] = [:]

    init(_ face: WebPushFace, wallMs: @escaping @Sendable () -> UInt64) { (self.face, self.wallMs) = (face, wallMs) }

    /// Returns the answer to a message. Returns nil if there is none.
    func answer(to text: [UInt8], on socket: WebSocketHandle) -> [UInt8]? {
        guard let message = JSON(parsing: text), case .object(let members) = message else { return nil }
        // A ping.
        if members.isEmpty { return Array("{}".utf8) }
        let kind = message["messageType"]?.text
        if kind == "hello" { return hello(message["uaid"]?.text, socket) }
        guard let profile = open[socket] else { return nil }
        switch kind {
        case "register": return register(message, profile)
        case "unregister": return unregister(message["channelID"]?.text ?? "", profile)
        case "ack": acknowledge(message, profile)
        case "nack":
            // It follows the acknowledgement, if the page's own code failed.
            if let version = message["version"]?.text, let code = message["code"]?.wholeNumber {
                face.log.entry(version)?.acknowledgement = Int(clamping: code)
            }
        default: break
        }
        return nil
    }

    func close(_ socket: WebSocketHandle) {
        guard let profile = open.removeValue(forKey: socket), profile.socket == socket else { return }
        profile.socket = nil
        suspend(profile)
    }

    private func suspend(_ profile: Profile) {
        profile.sending = nil
        for subscription in profile.subscriptions.values where subscription.state == .online {
            subscription.set(.offline, nowMs: wallMs())
        }
    }

    private func hello(_ known: String?, _ socket: WebSocketHandle) -> [UInt8] {
        let id = known.flatMap { profiles[$0] == nil ? nil : $0 } ?? WebPushFace.makeID()
        let profile = profiles[id] ?? Profile()
        profiles[id] = profile
        suspend(profile)
        (profile.socket, profile.isGreeted) = (socket, false)
        open[socket] = profile
        return Array(#"{"messageType":"hello","uaid":"\#(id)","status":200,"use_webpush":true,"broadcasts":{}}"#.utf8)
    }

    /// Sends the messages that waited, once `hello` is answered.
    /// - Returns: false if there was nothing to resume.
    func resume(_ socket: WebSocketHandle) -> Bool {
        guard let profile = open[socket], !profile.isGreeted else { return false }
        profile.isGreeted = true
        for subscription in profile.subscriptions.values where subscription.state == .offline {
            subscription.set(.online, nowMs: wallMs())
        }
        return true
    }

    private func register(_ message: JSON, _ profile: Profile) -> [UInt8] {
        let channel = message["channelID"]?.text ?? ""
        let made = message["key"]?.text.flatMap { try? face.subscribe(.mozilla, key: $0, keys: nil) }
        guard let made, !channel.isEmpty else { return Self.answer("register", channel, status: 400) }
        profile.subscriptions[channel] = made
        made.forward = { [weak profile] entry in
            guard let profile, let socket = profile.socket else { return }
            let (notification, last) = (Self.notification(entry, channel), profile.sending)
            // In the order of the messages.
            profile.sending = Task {
                await last?.value
                await socket.send(notification)
            }
        }
        return Self.answer("register", channel, status: 200, endpoint: made.endpoint)
    }

    private func unregister(_ channel: String, _ profile: Profile) -> [UInt8] {
        profile.subscriptions.removeValue(forKey: channel)?.set(.unsubscribed, nowMs: wallMs())
        return Self.answer("unregister", channel, status: 200)
    }

    private func acknowledge(_ message: JSON, _ profile: Profile) {
        guard case .array(let updates)? = message["updates"] else { return }
        for update in updates {
            guard let channel = update["channelID"]?.text, let version = update["version"]?.text else { continue }
            profile.subscriptions[channel]?.acknowledge(version, Int(clamping: update["code"]?.wholeNumber ?? 100))
        }
    }

    private static func answer(_ kind: String, _ channel: String, status: Int, endpoint: String? = nil) -> [UInt8] {
        var out = Array(#"{"messageType":"\#(kind)","channelID":"#.utf8)
        JSON.append(channel, to: &out)
        out += #","status":\#(status)"#.utf8
        if let endpoint {
            out += #","pushEndpoint":"#.utf8
            JSON.append(endpoint, to: &out)
        }
        out.append(UInt8(ascii: "}"))
        return out
    }

    /// The message stays encrypted as it came.
    private static func notification(_ entry: WebPushEntry, _ channel: String) -> [UInt8] {
        var out = Array(#"{"messageType":"notification","channelID":"#.utf8)
        JSON.append(channel, to: &out)
        out += #","version":"\#(entry.id)","ttl":\#(entry.message.ttl),"timestamp":\#(entry.at / 1_000)"#.utf8
        if let topic = entry.message.topic { out += #","topic":"\#(topic)""#.utf8 }
        out += #","data":"\#(Base64URL.encode(entry.message.body))","headers":{"encoding":"aes128gcm"}}"#.utf8
        return out
    }
}
