import Foundation
import MayflyClient

/// Keeps the chats beyond the app's end, each in an item of its own. On Apple's systems it is `ChatKeychain`.
protocol ChatStorage: Sendable {
    /// Adds the chat, or replaces it.
    func save(_ chat: Chats.Chat) throws
    func delete(_ chat: Chats.Chat) throws
    /// Returns the chats that can be read. Throws if the storage as a whole can't be read.
    func load() throws -> [Chats.Chat]
}

extension ChatStorage {
    /// The rooms with the phone's names for the other person, for `RoomNotification`.
    func known() throws -> [(room: Room, nickname: String)] { try load().map { ($0.room, $0.nickname) } }
}

extension Chats.Chat {
    /// Leaves out damaged items. They stay in the storage, since another version of the app may have written them.
    static func readable(_ items: [Data]) -> [Chats.Chat] {
        items.compactMap { try? JSONDecoder().decode(Chats.Chat.self, from: $0) }
    }
}

/// Stands for the Keychain where there is none. An app on a phone must not keep its rooms in files.
struct ChatFolder: ChatStorage {
    let folder: URL

    func save(_ chat: Chats.Chat) throws {
        let file = file(of: chat)
        // Made with its mode first, and replaced as a whole later.
        let new = file.appendingPathExtension("new")
        try? FileManager.default.removeItem(at: new)
        guard
            FileManager.default.createFile(
                atPath: new.path, contents: try JSONEncoder().encode(chat), attributes: [.posixPermissions: 0o600])
        else { throw CocoaError(.fileWriteUnknown) }
        guard rename(new.path, file.path) == 0 else { throw CocoaError(.fileWriteUnknown) }
    }

    func delete(_ chat: Chats.Chat) throws {
        let file = file(of: chat)
        if FileManager.default.fileExists(atPath: file.path) { try FileManager.default.removeItem(at: file) }
    }

    func load() throws -> [Chats.Chat] {
        let files = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
        return Chats.Chat.readable(files.filter { $0.pathExtension == "json" }.compactMap { try? Data(contentsOf: $0) })
    }

    private func file(of chat: Chats.Chat) -> URL { folder.appending(path: "\(chat.id.uuidString).json") }
}
