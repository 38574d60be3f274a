extension Policy {
    /// The policies inside the binary, byte for byte the files in `policies/`.
    public static let builtInNames = ["rooms", "companion", "monitor", "calls"]

    /// - Returns: nil when no built-in policy has that name.
    /// - Throws: `PolicyError` when a built-in policy would be refused; a test sees to it that none is.
    public static func builtIn(_ name: String) throws(PolicyError) -> Policy? {
        guard let bytes = builtInBytes(name) else { return nil }
        return try Policy(bytes)
    }

    /// The file's exact bytes.
    public static func builtInBytes(_ name: String) -> [UInt8]? {
        switch name {
        case "rooms": PackageResources.rooms_json
        case "companion": PackageResources.companion_json
        case "monitor": PackageResources.monitor_json
        case "calls": PackageResources.calls_json
        default: nil
        }
    }
}
