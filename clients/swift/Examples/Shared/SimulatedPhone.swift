#if MAYFLY_APPLE_STUBS
    import ActivityKit
    import CallKit
    import Foundation
    import MayflyApple
    import PushKit
    import UIKit
    import UserNotifications

    /// A phone on Linux: it plays iOS for an app's delegate by lines on standard input, and prints lines for the user on standard output.
    ///
    /// `token HEX`, `notoken`: what Apple gives the phone. `permit`: the user has allowed notifications. `refuse`: refuses when asked, or
    /// in Settings.
    /// `push ID JSON`: a push comes. `tap ID`, `press BUTTON ID`: on a notification. `screen`: lists the notifications and the badge.
    /// `activity-token SESSION HEX`: of a Live Activity. `voip-token HEX`, `voip-invalid`, `ring JSON`: PushKit. `answer`, `mute`, `hangup`: on the call's screen.
    /// `background`, `foreground`, `quit`. All others are the app's own.
    @MainActor
    public final class SimulatedPhone {
        private let delegate: any UIApplicationDelegate
        private let service: UNNotificationServiceExtension?
        private let application = UIApplication.shared
        private var center: UNUserNotificationCenter { .current() }
        private var notifications: any UNUserNotificationCenterDelegate {
            guard let delegate = center.delegate else { fatalError("the app has no delegate for notifications") }
            return delegate
        }

        /// - Parameter service: the app's notification service extension, on a phone a process of its own.
        public init(
            _ delegate: any UIApplicationDelegate,
            service: UNNotificationServiceExtension? = nil
        ) {
            (self.delegate, self.service) = (delegate, service)
        }

        nonisolated public static func show(_ line: String) { FileHandle.standardOutput.write(Data("\(line)\n".utf8)) }

        /// Launches the app, and ends with `quit` or the input.
        ///
        /// - Parameter command: runs a line of the app's own. Returns false if it is none.
        public func run(_ command: @MainActor ([String]) async throws -> Bool) async {
            application.delegate = delegate
            _ = delegate.application(application, didFinishLaunchingWithOptions: nil)
            for await line in Self.lines() {
                let words = line.split(separator: " ").map(String.init)
                guard let first = words.first else { continue }
                do {
                    let isOwn = await play(words, line)
                    let isKnown = if isOwn { true } else { try await command(words) }
                    Self.show(isKnown ? "done \(first)" : "unknown command")
                } catch {
                    Self.show("failed: \(error)")
                }
                if first == "quit" { return }
            }
        }

        /// Returns false if the line is none of these.
        private func play(_ words: [String], _ line: String) async -> Bool {
            switch (words[0], words.count) {
            case ("token", 2): application.stubToken = .success(Self.bytes(words[1]))
            case ("notoken", 1): application.stubToken = .failure(CocoaError(.fileNoSuchFile))
            case ("refuse", 1): set(.denied)
            case ("permit", 1): set(.authorized)
            case ("push", 3...): await receive(words[1], line.split(separator: " ", maxSplits: 2).last.map(String.init) ?? "")
            case ("tap", 2): await respond(to: words[1], UNNotificationDefaultActionIdentifier)
            case ("press", 3): await respond(to: words[2], words[1])
            case ("screen", 1): showScreen()
            case ("activity-token", 3):
                stubActivityToken(Self.bytes(words[2]), of: SessionAttributes.self) { $0.sessionID == words[1] }
            case ("voip-token", 2):
                registry?.delegate?.pushRegistry(registry!, didUpdate: PKPushCredentials(stub: Self.bytes(words[1])), for: .voIP)
            case ("voip-invalid", 1): registry?.delegate?.pushRegistry(registry!, didInvalidatePushTokenFor: .voIP)
            case ("ring", 2...): ring(line.split(separator: " ", maxSplits: 1).last.map(String.init) ?? "")
            case ("answer", 1): callID.map { provider?.stubDelegate?.provider(provider!, perform: CXAnswerCallAction(call: $0)) }
            case ("hangup", 1): callID.map { provider?.stubDelegate?.provider(provider!, perform: CXEndCallAction(call: $0)) }
            case ("mute", 1):
                callID.map { provider?.stubDelegate?.provider(provider!, perform: CXSetMutedCallAction(call: $0, muted: true)) }
            case ("background", 1): application.stubEnterBackground()
            case ("foreground", 1): application.stubEnterForeground()
            case ("quit", 1): application.stubTerminate()
            default: return false
            }
            return true
        }

        // MARK: Calls

        private var registry: PKPushRegistry? { .stubLast }
        private var provider: CXProvider? { .stubLast }
        private var callID: UUID? { provider?.stubCalls.last?.id }

        private func ring(_ json: String) {
            guard let registry, let provider,
                let payload = (try? JSONSerialization.jsonObject(with: Data(json.utf8))) as? [String: Any]
            else { return Self.show("this app has no PushKit, or that is no JSON") }
            let before = provider.stubCalls.count
            registry.delegate?.pushRegistry(registry, didReceiveIncomingPushWith: PKPushPayload(stub: payload), for: .voIP) {}
            // iOS ends an app that doesn't report a push to CallKit.
            precondition(provider.stubCalls.count == before + 1, "the call was not reported")
            let call = provider.stubCalls[before].update
            Self.show("screen: \(call.localizedCallerName ?? "nobody") calls\(call.hasVideo ? " with video" : "")")
        }

        // MARK: Notifications

        private func set(_ status: UNAuthorizationStatus) {
            center.stub.withLock { state in
                state.answer = status
                // Who refuses does so when the app asks, or later in Settings.
                if status == .authorized || state.status != .notDetermined { state.status = status }
            }
        }

        private func receive(_ identifier: String, _ json: String) async {
            guard let payload = (try? JSONSerialization.jsonObject(with: Data(json.utf8))) as? [String: Any] else {
                return Self.show("no JSON")
            }
            let aps = payload["aps"] as? [String: Any] ?? [:]
            let request = UNNotificationRequest(stubIdentifier: identifier, payload: payload)
            let isAllowed = center.stub.withLock { [.authorized, .provisional].contains($0.status) }
            if aps["alert"] != nil, isAllowed { await present(request, isMutable: aps["mutable-content"] as? Int == 1) }
            if aps["content-available"] as? Int == 1 {
                let result = await delegate.application(application, didReceiveRemoteNotification: payload)
                Self.show("received \(result)")
            }
        }

        private func present(_ request: UNNotificationRequest, isMutable: Bool) async {
            var content = request.content
            if isMutable { service?.didReceive(request) { content = $0 } }
            let changed = UNNotificationRequest(identifier: request.identifier, content: content, trigger: nil)
            if application.applicationState == .active {
                let notification = UNNotification(stub: changed)
                let options = await withCheckedContinuation { continuation in
                    notifications.userNotificationCenter(center, willPresent: notification) {
                        // UIKit fails if this comes on another thread.
                        MainActor.preconditionIsolated()
                        continuation.resume(returning: $0)
                    }
                }
                Self.show(options.contains(.banner) ? "banner \(Self.text(of: content))" : "no banner")
                if options.contains(.list) { center.stubDeliver(changed) }
            } else {
                center.stubDeliver(changed)
                Self.show("banner \(Self.text(of: content))")
            }
        }

        private func respond(to identifier: String, _ action: String) async {
            guard let shown = center.stub.withLock({ $0.delivered.first { $0.request.identifier == identifier } }) else {
                return Self.show("no such notification")
            }
            // iOS takes it off the screen.
            center.removeDeliveredNotifications(withIdentifiers: [identifier])
            await withCheckedContinuation { continuation in
                notifications.userNotificationCenter(center, didReceive: UNNotificationResponse(stub: shown, action: action)) {
                    MainActor.preconditionIsolated()
                    continuation.resume()
                }
            }
        }

        private func showScreen() {
            let (shown, badge) = center.stub.withLock { ($0.delivered.map(\.request.content), $0.badge) }
            Self.show("screen \(shown.map(Self.text).joined(separator: ", ")) badge \(badge)")
        }

        private static func text(of content: UNNotificationContent) -> String {
            [content.title, content.subtitle, content.body].filter { !$0.isEmpty }.joined(separator: " | ")
        }

        /// The bytes of hexadecimal text. Apple gives an app bytes.
        public static func bytes(_ hex: String) -> Data {
            let digits = hex.compactMap { $0.hexDigitValue }
            return Data(stride(from: 0, to: digits.count - 1, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) })
        }

        /// Reads in a thread, since a task must not wait for a person.
        private static func lines() -> AsyncStream<String> {
            AsyncStream { continuation in
                Thread.detachNewThread {
                    while let line = readLine() { continuation.yield(line) }
                    continuation.finish()
                }
            }
        }
    }
#endif
