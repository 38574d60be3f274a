#if canImport(Security)
    import Foundation
    import Security

    /// Keeps the chats in a Keychain group that the app shares with its notification service extension. Compiled on Apple's systems only.
    enum ChatKeychain {
        /// The app and the extension need this group in their capability Keychain Sharing. `TEAM` is the team's id.
        private static let query: [CFString: Any] = [
            kSecClass: kSecClassGenericPassword, kSecAttrAccount: "chats", kSecAttrAccessGroup: "TEAM.org.example.app.chats",
            kSecUseDataProtectionKeychain: true,
        ]

        static func save(_ chats: [Chats.Chat]) throws {
            let data = try JSONEncoder().encode(chats)
            // The extension reads them on a locked phone, and no backup takes them to another one.
            let new: [CFString: Any] = [
                kSecValueData: data, kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly,
            ]
            var status = SecItemUpdate(query as CFDictionary, new as CFDictionary)
            if status == errSecItemNotFound { status = SecItemAdd(query.merging(new) { $1 } as CFDictionary, nil) }
            guard status == errSecSuccess else { throw NSError(domain: NSOSStatusErrorDomain, code: Int(status)) }
        }

        static func load() -> [Chats.Chat] {
            var found: CFTypeRef?
            let wanted = query.merging([kSecReturnData: true]) { $1 }
            guard SecItemCopyMatching(wanted as CFDictionary, &found) == errSecSuccess, let data = found as? Data else {
                return []
            }
            return (try? JSONDecoder().decode([Chats.Chat].self, from: data)) ?? []
        }
    }
#endif
