import Foundation

/// A registered token. Keep it in the Keychain: pushes that come while the phone is locked need ``handle(_:_:)``.
public struct Registration: Hashable, Sendable, Codable {
    /// What a name in a push stands for.
    public enum Kind: String, Sendable {
        /// Sessions of companions and of calls.
        case session
        /// Printers.
        case printer
        /// Callers.
        case uid
    }

    /// The broker's name for the registration, for deleting it.
    public let id: String
    /// Finds and proves the token's entries in the public log.
    public let ref: Secret
    public let expiresAt: Date
    private let handleKey: Secret

    /// The app of a registration.
    enum Service { case companion, monitor, calls }

    /// Ids of monitors have no prefix.
    var service: Service {
        switch id.utf8.count {
        case 22: .monitor
        case 26: .companion
        default: .calls
        }
    }

    /// Returns what pushes to this registration call `name`, 22 characters of base64url. Compare it with the push.
    public func handle(_ kind: Kind, _ name: String) -> String? {
        Data(base64URL: handleKey.value).map { Handle.make(key: $0, kind: kind.rawValue, slot: 0, id: name) }
    }

    /// Makes a table of the names that this phone knows. Make it again when they or the registration change.
    public func table(_ kind: Kind, _ names: some Sequence<String>) -> HandleTable {
        var table = HandleTable()
        for name in names { if let handle = handle(kind, name) { table.names[handle] = name } }
        return table
    }

    private enum CodingKeys: String, CodingKey {
        case id = "tokenId"
        case deviceId, ref, expiresAt, handleKey
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        id = try container.decodeIfPresent(String.self, forKey: .id) ?? container.decode(String.self, forKey: .deviceId)
        ref = try container.decode(Secret.self, forKey: .ref)
        expiresAt = try container.decode(Date.self, forKey: .expiresAt)
        handleKey = try container.decode(Secret.self, forKey: .handleKey)
        guard Self.isID(id), ref.isRef, handleKey.isCapability else {
            throw DecodingError.dataCorrupted(.init(codingPath: container.codingPath, debugDescription: "not a registration"))
        }
    }

    /// Whether this is a broker's id: 22 characters of base64url, of companions and calls after a prefix.
    private static func isID(_ text: String) -> Bool {
        let prefix = ["tok_", "lat_", "voip_"].first { text.utf8.count == $0.utf8.count + 22 && text.hasPrefix($0) } ?? ""
        let name = text.dropFirst(prefix.count)
        return name.utf8.count == 22 && Data(base64URL: String(name))?.count == 16
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(id, forKey: .id)
        try container.encode(ref, forKey: .ref)
        try container.encode(expiresAt, forKey: .expiresAt)
        try container.encode(handleKey, forKey: .handleKey)
    }
}

/// The names that this phone knows, by the handles under which pushes call them.
///
/// Keep it where an extension of a locked phone can read it. It contains the app's own names, and no secret of the broker.
public struct HandleTable: Hashable, Sendable, Codable {
    fileprivate(set) var names: [String: String] = [:]

    /// A table without names.
    public init() {}

    /// Returns nil if the handle is unknown. Anybody who knows a token can register it, so pushes of strangers have unknown handles.
    public func name(_ handle: String) -> String? { names[handle] }
}
