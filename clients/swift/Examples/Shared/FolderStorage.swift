#if MAYFLY_APPLE_STUBS
    import Foundation

    /// Stands for the Keychain where there is none. An app on a phone must not keep secrets in files.
    public struct FolderStorage: Storage {
        private let folder: URL

        /// Makes the folder, if there is none.
        public init(_ folder: URL) throws {
            self.folder = folder
            try FileManager.default.createDirectory(
                at: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        }

        public func save(_ value: some Encodable, as id: String) throws {
            // Made with its mode first, and replaced as a whole later.
            let new = file(id).appendingPathExtension("new")
            try? FileManager.default.removeItem(at: new)
            guard FileManager.default.createFile(atPath: new.path, contents: nil, attributes: [.posixPermissions: 0o600])
            else { throw CocoaError(.fileWriteUnknown) }
            try JSONEncoder().encode(value).write(to: new)
            guard rename(new.path, file(id).path) == 0 else { throw CocoaError(.fileWriteUnknown) }
        }

        public func delete(_ id: String) throws {
            if FileManager.default.fileExists(atPath: file(id).path) { try FileManager.default.removeItem(at: file(id)) }
        }

        public func load<Value: Decodable>(_ type: Value.Type, as id: String) throws -> Value? {
            guard FileManager.default.fileExists(atPath: file(id).path) else { return nil }
            return try JSONDecoder().decode(Value.self, from: Data(contentsOf: file(id)))
        }

        public func load<Value: Decodable>(_ type: Value.Type) throws -> [Value] {
            let files = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
            return files.filter { $0.pathExtension == "json" }.compactMap { try? Data(contentsOf: $0) }
                .compactMap { try? JSONDecoder().decode(Value.self, from: $0) }
        }

        private func file(_ id: String) -> URL { folder.appending(path: "\(id).json") }
    }
#endif
