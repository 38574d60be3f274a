import Foundation

/// Text that nothing prints: descriptions, interpolation, `dump` and mirrors show `<redacted>`.
///
/// It encodes as a plain string, so that an app can keep a ``Room`` in its Keychain.
public struct Secret: Hashable, Sendable, Codable {
    /// The secret itself. Keep it out of logs, URLs and files.
    public let value: String

    public init(_ value: String) { self.value = value }

    public init(from decoder: any Decoder) throws { value = try decoder.singleValueContainer().decode(String.self) }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(value)
    }

    /// Returns `count` random bytes as base64url without padding.
    static func random(bytes count: Int) -> Secret {
        var generator = SystemRandomNumberGenerator()
        return Secret(Data((0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }).base64URL)
    }
}

extension Secret {
    /// A room id, member secret or handle key: 32 bytes in base64url.
    var isCapability: Bool { value.utf8.count == 43 && Data(base64URL: value)?.count == 32 }
    /// 16 bytes in hexadecimal.
    var isRef: Bool { value.utf8.count == 32 && value.utf8.allSatisfy("0123456789abcdef".utf8.contains) }
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String { "<redacted>" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

extension Data {
    /// Base64url without padding (RFC 4648, section 5).
    var base64URL: String {
        base64EncodedString().replacingOccurrences(of: "+", with: "-").replacingOccurrences(of: "/", with: "_")
            .replacingOccurrences(of: "=", with: "")
    }

    /// Returns nil if `text` is not base64url without padding.
    init?(base64URL text: String) {
        guard !text.contains(where: { "+/=".contains($0) }) else { return nil }
        let standard = text.replacingOccurrences(of: "-", with: "+").replacingOccurrences(of: "_", with: "/")
        self.init(base64Encoded: standard + String(repeating: "=", count: (4 - standard.count % 4) % 4))
    }
}
