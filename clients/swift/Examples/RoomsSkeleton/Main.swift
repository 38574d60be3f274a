#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import Foundation
    import MayflyClient
    import SocketTransport
    import UIKit

    /// The app on Linux, without screens:
    ///
    ///     RoomsSkeleton http://127.0.0.1:8787 FOLDER
    ///
    /// FOLDER is the phone's storage: another process with the same one goes on with its chats.
    ///
    /// `create NAME` `accept CODE NAME` `open NAME` `delete NAME` `off` `on` `ask` `settings`, and those of `SimulatedPhone`
    @main
    @MainActor
    struct Main {
        static func main() async throws {
            let arguments = CommandLine.arguments.dropFirst()
            guard arguments.count == 2, let url = URL(string: arguments[1]) else {
                return print("usage: RoomsSkeleton BROKER-URL FOLDER")
            }
            let storage = try FolderStorage(URL(fileURLWithPath: arguments[2], isDirectory: true))
            let client = try Client(baseURL: url, environment: .sandbox, transport: SocketTransport())
            let show = SimulatedPhone.show
            let delegate = AppDelegate(chats: Chats(client: client, storage: storage, show: show), show: show)
            let phone = SimulatedPhone(delegate, service: NotificationService(storage: storage))
            await phone.run { words in try await run(words, delegate, show) }
        }

        private static func run(_ words: [String], _ delegate: AppDelegate, _ show: (String) -> Void) async throws -> Bool {
            let chats = delegate.chats
            switch (words[0], words.count) {
            case ("create", 2):
                show("code \(try await chats.create(nickname: words[1]).display)")
                await delegate.askForPermission()
            case ("accept", 3):
                if try await accept(typed: words[1], nickname: words[2], chats, show) { await delegate.askForPermission() }
            case ("open", 2), ("delete", 2):
                guard let chat = await chats.all.first(where: { $0.nickname == words[1] }) else {
                    show("unknown chat")
                    break
                }
                if words[0] == "open" { await chats.open(chat.id) } else { try await chats.delete(chat.id) }
            case ("ask", 1):
                await delegate.askForPermission()
                await delegate.permission.refresh()
                show("permission \(delegate.permission.status)")
            case ("settings", 1):
                delegate.permission.openSettings()
                show("opened \(UIApplication.shared.stubOpened.last?.absoluteString ?? "nothing")")
            case ("off", 1): try await chats.turnPushesOff()
            case ("on", 1): try await chats.turnPushesOn()
            default: return false
            }
            return true
        }

        private static func accept(
            typed: String, nickname: String, _ chats: Chats, _ show: (String) -> Void
        ) async throws -> Bool {
            do {
                if try await chats.accept(typed: typed, nickname: nickname) { return true }
                show("that is no code")
            } catch let error as MayflyError {
                switch error {
                case .refused(let refusal) where refusal.kind == .gone: show("this code has expired")
                case .refused(let refusal) where refusal.kind == .conflict: show("this code was used")
                case .refused(let refusal): show(refusal.retryAfter.map { "try again in \($0)" } ?? refusal.detail)
                case .unreachable, .noAnswer: show("no connection, try again")
                case .unexpectedAnswer: show("this address is not the broker's")
                case .invalidConfiguration(let why): show(why)
                }
            }
            return false
        }
    }
#endif
