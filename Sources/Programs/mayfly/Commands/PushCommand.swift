import Broker
import Courier
import EventLoop
import JSON
import Linux
import Policy
import Sealing
import Storage
import TLS
import Vocabulary
import WebPush

/// `mayfly push keys|enable|disable|check`.
enum PushCommand {
    private static let storeKeys: [Setting] = [.state, .database]
    private static let checkKeys: [Setting] = [.policy, .apnsProxy, .apnsProxyPassword] + WebPushSettings.keys

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "push", subcommands)) }
        let configuration = try Configuration(words, keys: storeKeys + checkKeys, options: [])
        switch configuration.operands.first {
        case "keys" where configuration.operands.count == 2: try make(configuration.operands[1])
        case "keys": throw UsageError("push keys needs one FILE to write the key to")
        case "enable" where configuration.operands.count == 1: try await enable(configuration)
        case "disable" where configuration.operands.count == 1: try await disable(configuration)
        case "check" where configuration.operands.count == 1: try await check(configuration)
        case let word:
            throw UsageError(
                "unknown push command. Use keys, enable, disable or check\(Spelling.hint(word ?? "", subcommands.map(\.name)))")
        }
    }

    private static func make(_ path: String) throws {
        guard !File.exists(path) else {
            throw CheckFailed("\(ShownPath(path)) exists and is not replaced: all subscriptions made for its key would be lost")
        }
        let key = try ES256.PrivateKey()
        let pem = try key.pem()
        try File.replaceDurably(path, pem.span, mode: 0o600)
        Terminal.out("made \(ShownPath(path)). Browsers subscribe with \(try VAPIDKey(key).publicKey)")
        Terminal.out("Give the same file to all nodes, and back it up: without it every subscription is lost.")
    }

    private static func enable(_ configuration: Configuration) async throws {
        guard let settings = try WebPushSettings(configuration, readsProxy: false) else {
            throw UsageError("\(Setting.vapidKey.named) is missing. `mayfly push keys FILE` makes a key")
        }
        let (dropsKey, changesSize) = try await settings.enable(in: try configuration.state)
        let keys = settings.service.keys.map(\.publicKey)
        let previous = keys.count > 1 ? "; \(keys[1]) stays for addresses from before" : ""
        Terminal.out("Web Push is enabled. Browsers get \(keys[0]) from the next start on\(previous).")
        if dropsKey { Terminal.out("Addresses made for the key before get no push from the next start on.") }
        guard changesSize else { return }
        Terminal.out("New addresses of all services are sealed in one size from the next start of each broker on.")
        Terminal.out("Rows that were sealed before are visibly Apple's until they expire.")
    }

    private static func disable(_ configuration: Configuration) async throws {
        try await WebPushSettings.disable(in: try configuration.state)
        Terminal.out(
            "Web Push is switched off from the next start of each broker on, with or without the key. Without it, pushes to addresses of before fail."
        )
    }

    /// Sends one message to the subscription on standard input.
    private static func check(_ configuration: Configuration) async throws {
        guard let settings = try WebPushSettings(configuration) else {
            throw UsageError("\(Setting.vapidKey.named) is missing. `mayfly push keys FILE` makes a key")
        }
        let usage = "push check reads a subscription, JSON in one line, from standard input"
        let line = try Terminal.inputLine(limit: 8_192, usage) ?? []
        let subscription = try subscription(line, settings.service.hosts, usage)
        guard let endpoint = subscription.endpoint,
            let template = try PolicyCommand.inForce(configuration).template(Rooms.template),
            let text = try template.renderWeb(handle: .random(), nowMs: Clock.wallMs, origin: settings.service.origin)
        else { throw CheckFailed("the policy in force has no text for browsers") }
        let loop = try EventLoop(name: "web-push")
        try loop.start()
        defer { loop.stop() }
        let courier = WebPushCourier(loop: loop, settings.courier { alarm in Terminal.log(.error, "\(alarm)") })
        let now = Clock.wallMs
        var push = Push(
            apnsID: Push.randomID(),
            address: PushAddress(.webPush(key: settings.service.current.number), token: subscription.secret),
            expirationS: nil, collapseID: Handle.random().base64url, payload: text, sealedAtMs: now, deadlineMs: now + 15_000)
        push.ttlS = template.ttlSeconds
        let outcome = await courier.send(push)
        let inward = await courier.figures.inward
        await courier.stop(withinMs: 1_000)
        guard case .failed(let status, let reason, _) = outcome else {
            return Terminal.out(
                "delivered: the service has it. If the browser shows nothing, ask for its permission and its service worker")
        }
        throw CheckFailed(
            "not delivered: "
                + why(
                    status, reason, isInward: inward > 0,
                    isListed: settings.service.hosts.rule(endpoint.host, endpoint.port) != nil))
    }

    private static func subscription(_ line: [UInt8], _ hosts: PushHosts, _ usage: String) throws -> Subscription {
        guard let object = JSONObject(line.span), let keys = try? object.object("keys", in: line.span),
            let inner = object.opened(keys, in: line.span), let endpoint = try? object.bytes("endpoint", in: line.span),
            let p256dh = try? inner.bytes("p256dh", in: line.span), let auth = try? inner.bytes("auth", in: line.span)
        else { throw UsageError("\(usage): what `JSON.stringify(subscription)` returns") }
        do {
            return try Subscription(endpoint: endpoint.span, p256dh: p256dh.span, auth: auth.span, hosts)
        } catch Subscription.Fault.endpoint(let fault) {
            throw CheckFailed("its endpoint is refused: it must be \(fault)")
        } catch Subscription.Fault.p256dh, Subscription.Fault.auth {
            throw CheckFailed("its keys are malformed")
        }
    }

    private static func why(_ status: Int, _ reason: PushReason, isInward: Bool, isListed: Bool) -> String {
        if isInward {
            return
                "the host has only addresses of private networks. To allow it, name it with `private` in the file of \(Setting.webPushHosts.named)"
        }
        switch status {
        case 0:
            let trust = isListed ? ". If its certificate is of your own authority, add `ca FILE` to its line" : ""
            return "no answer (\(reason.rawValue)): the host can't be reached or not be trusted\(trust)"
        case 403:
            return
                "the service refuses this sender (401, 403, or 400 VapidPkHashMismatch): the subscription was made for another key, or \(Setting.vapidContact.named) or this machine's clock is wrong"
        case 410:
            return
                "the service doesn't know the subscription (404 or 410): the browser has dropped it, or it was made for another service"
        case 413: return "the service refuses the message's size (413), which is that of all messages: please report it"
        case 429: return "the service asks to wait (406 or 429)"
        case 503: return "the service failed (5xx)"
        default: return "the service refused the message"
        }
    }

    private static let subcommands = [
        Subcommand("keys", ["FILE"], "make a VAPID key (RFC 8292), by which Web Push services know this deployment", keys: []),
        Subcommand(
            "enable", ["[FLAGS]"],
            """
            record the VAPID key, and let addresses of Web Push be stored: new rows become longer, those of Apple's tokens, too, so
            that none shows its service. With SQLite stop the broker first. With several nodes give all of them the key and start them
            again, run it at one of them, and start them again. Also records a new key when it is rotated
            """, keys: storeKeys + WebPushSettings.keys),
        Subcommand(
            "disable", ["[FLAGS]"],
            """
            switch Web Push off: a broker then starts without the VAPID key, and takes no subscription with it. With SQLite stop the broker
            first. Start all nodes again
            """, keys: storeKeys),
        Subcommand(
            "check", ["[FLAGS] <SUBSCRIPTION"],
            "send one message to the subscription on standard input (JSON in one line), and say what came of it. It is not recorded in the log",
            keys: checkKeys),
    ]
}
