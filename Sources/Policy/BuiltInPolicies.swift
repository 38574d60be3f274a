extension Policy {
    /// The policies inside the binary, byte for byte the files in `policies/`. `trial` is made from that for rooms.
    public static let builtInNames = ["rooms", "companion", "monitor", "calls", "trial"]

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
        case "trial": trialBytes
        default: nil
        }
    }

    /// The policy for rooms with a log whose hours and days last ten seconds, for `mayfly demo`.
    private static var trialBytes: [UInt8] {
        let published = #""hourSeconds": 3600, "daySeconds": 86400, "batchSeals": 64"#
        let name = #""name": "rooms""#
        let rooms = String(decoding: PackageResources.rooms_json, as: UTF8.self)
        precondition(rooms.contains(published) && rooms.contains(name), "policies/rooms.json is spelled in another way")
        return Array(
            rooms
                .replacing(published, with: #""hourSeconds": 10, "daySeconds": 10, "batchSeals": 1"#)
                .replacing(name, with: #""name": "trial""#).utf8)
    }
}
