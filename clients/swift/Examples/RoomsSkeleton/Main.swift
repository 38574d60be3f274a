import Foundation
import MayflyClient
import SocketTransport

/// The app without screens: commands on standard input, lines for the user on standard output.
///
///     RoomsSkeleton http://127.0.0.1:8787 FOLDER
///
/// FOLDER is the phone's storage: another process with the same one goes on with its chats.
///
/// `token HEX` `create NAME` `accept CODE NAME` `open NAME` `tap HANDLE` `notification HANDLE` `background` `foreground` `delete NAME` `off`
/// `quit`
@main
struct Main {
    static func main() async throws {
        let arguments = CommandLine.arguments.dropFirst()
        guard arguments.count == 2, let url = URL(string: arguments[1]) else {
            return print("usage: RoomsSkeleton BROKER-URL FOLDER")
        }
        let storage = ChatFolder(folder: URL(fileURLWithPath: arguments[2], isDirectory: true))
        try FileManager.default.createDirectory(
            at: storage.folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        let client = try Client(baseURL: url, environment: .sandbox, transport: SocketTransport())
        let show: @Sendable (String) -> Void = { line in
            FileHandle.standardOutput.write(Data("\(line)\n".utf8))
        }
        let chats = Chats(client: client, storage: storage, show: show)
        await chats.load()
        for await line in lines() {
            do {
                try await run(line.split(separator: " ").map(String.init), chats, storage, show)
            } catch {
                show("failed: \(error)")
            }
            if line == "quit" { return }
        }
    }

    private static func run(
        _ words: [String], _ chats: Chats, _ storage: ChatFolder, _ show: (String) -> Void
    ) async throws {
        switch (words.first, words.count) {
        case ("token", 2): await chats.register(bytes(words[1]))
        case ("create", 2): show("code \(try await chats.create(nickname: words[1]).display)")
        case ("accept", 3): try await accept(typed: words[1], nickname: words[2], chats, show)
        case ("open", 2): await chats.open(nickname: words[1])
        case ("tap", 2): await chats.tapped(payload: ["roomId": words[1]])
        // `NotificationService` does this, in a process of its own.
        case ("notification", 2):
            let notification = RoomNotification(payload: ["roomId": words[1]], rooms: try storage.known())
            show(notification.map { "titled \($0.nickname)" } ?? "unknown push")
        case ("background", 1): await chats.didEnterBackground()
        case ("foreground", 1): await chats.willEnterForeground()
        case ("delete", 2): try await chats.delete(nickname: words[1])
        case ("off", 1): await chats.turnPushesOff()
        case ("quit", 1): await chats.willTerminate()
        default: return show("unknown command")
        }
        show("done \(words[0])")
    }

    private static func accept(typed: String, nickname: String, _ chats: Chats, _ show: (String) -> Void) async throws {
        do {
            try await chats.accept(typed: typed, nickname: nickname)
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
    }

    /// The bytes of hexadecimal text. Apple gives an app bytes.
    private static func bytes(_ hex: String) -> Data {
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
