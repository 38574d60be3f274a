#if canImport(Security) || MAYFLY_APPLE_STUBS
    import Foundation
    import Security

    /// Keeps values in a Keychain group that an app shares with its extensions, each in an item of its own. Compiled on Apple's systems only.
    ///
    /// A locked phone can read them from its first unlock after a start, and no backup takes them to another phone.
    public struct SharedKeychain: Sendable {
        private let service: String
        private let group: String

        /// - Parameters:
        ///   - service: the app's name for a kind of values.
        ///   - accessGroup: a group of the capability Keychain Sharing of both, such as `TEAM.org.example.app`, where `TEAM` is the team's id.
        public init(service: String, accessGroup: String) { (self.service, group) = (service, accessGroup) }

        /// Why the Keychain refused a call.
        public struct Failure: Error, Hashable, Sendable {
            /// A code of `SecBase.h`. Before the first unlock it is `errSecInteractionNotAllowed`.
            public let status: OSStatus
        }

        private var all: [CFString: Any] {
            [
                kSecClass: kSecClassGenericPassword, kSecAttrService: service, kSecAttrAccessGroup: group,
                kSecUseDataProtectionKeychain: true,
            ]
        }

        private func one(_ id: String) -> [CFString: Any] { all.merging([kSecAttrAccount: id]) { $1 } }

        /// Adds the value under `id`, or replaces it.
        ///
        /// - Throws: ``Failure``, or what the encoder throws.
        public func save(_ value: some Encodable, as id: String) throws {
            let new: [CFString: Any] = [
                kSecValueData: try JSONEncoder().encode(value),
                kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly,
            ]
            var status = SecItemUpdate(one(id) as CFDictionary, new as CFDictionary)
            if status == errSecItemNotFound { status = SecItemAdd(one(id).merging(new) { $1 } as CFDictionary, nil) }
            try Self.check(status)
        }

        /// Deletes a value. What is gone already counts as deleted.
        ///
        /// - Throws: ``Failure``.
        public func delete(_ id: String) throws {
            let status = SecItemDelete(one(id) as CFDictionary)
            if status != errSecItemNotFound { try Self.check(status) }
        }

        /// Returns the value under `id`. Returns nil if there is none.
        ///
        /// - Throws: ``Failure``, or what the decoder throws if another version of the app wrote it.
        public func load<Value: Decodable>(_ type: Value.Type = Value.self, as id: String) throws -> Value? {
            let wanted = one(id).merging([kSecReturnData: true]) { $1 }
            var found: CFTypeRef?
            let status = SecItemCopyMatching(wanted as CFDictionary, &found)
            if status == errSecItemNotFound { return nil }
            try Self.check(status)
            return try JSONDecoder().decode(Value.self, from: found as? Data ?? Data())
        }

        /// Returns the values that can be read. Others stay, since another version of the app may have written them.
        ///
        /// - Throws: ``Failure`` if the Keychain as a whole can't be read.
        public func load<Value: Decodable>(_ type: Value.Type = Value.self) throws -> [Value] {
            let wanted = all.merging([kSecMatchLimit: kSecMatchLimitAll, kSecReturnData: true]) { $1 }
            var found: CFTypeRef?
            let status = SecItemCopyMatching(wanted as CFDictionary, &found)
            if status == errSecItemNotFound { return [] }
            try Self.check(status)
            return (found as? [Data] ?? []).compactMap { try? JSONDecoder().decode(Value.self, from: $0) }
        }

        private static func check(_ status: OSStatus) throws {
            guard status == errSecSuccess else { throw Failure(status: status) }
        }
    }
#endif
