#if canImport(Security)
    import Foundation
    import Security

    /// Keeps each chat in a Keychain group that the app shares with its notification service extension. Compiled on Apple's systems only.
    struct ChatKeychain: ChatStorage {
        /// The app and the extension need this group in their capability Keychain Sharing. `TEAM` is the team's id.
        private static let all: [CFString: Any] = [
            kSecClass: kSecClassGenericPassword, kSecAttrService: "chats",
            kSecAttrAccessGroup: "TEAM.org.example.app.chats", kSecUseDataProtectionKeychain: true,
        ]

        private static func one(_ chat: Chats.Chat) -> [CFString: Any] {
            all.merging([kSecAttrAccount: chat.id.uuidString]) { $1 }
        }

        func save(_ chat: Chats.Chat) throws {
            let data = try JSONEncoder().encode(chat)
            // The extension reads it on a locked phone, and no backup takes it to another one.
            let new: [CFString: Any] = [
                kSecValueData: data, kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly,
            ]
            var status = SecItemUpdate(Self.one(chat) as CFDictionary, new as CFDictionary)
            if status == errSecItemNotFound {
                status = SecItemAdd(Self.one(chat).merging(new) { $1 } as CFDictionary, nil)
            }
            try Self.check(status)
        }

        func delete(_ chat: Chats.Chat) throws {
            let status = SecItemDelete(Self.one(chat) as CFDictionary)
            if status != errSecItemNotFound { try Self.check(status) }
        }

        func load() throws -> [Chats.Chat] {
            let wanted = Self.all.merging([kSecMatchLimit: kSecMatchLimitAll, kSecReturnData: true]) { $1 }
            var found: CFTypeRef?
            let status = SecItemCopyMatching(wanted as CFDictionary, &found)
            if status == errSecItemNotFound { return [] }
            // Also before the phone's first unlock after it was switched on.
            try Self.check(status)
            return Chats.Chat.readable(found as? [Data] ?? [])
        }

        private static func check(_ status: OSStatus) throws {
            guard status == errSecSuccess else { throw NSError(domain: NSOSStatusErrorDomain, code: Int(status)) }
        }
    }
#endif
