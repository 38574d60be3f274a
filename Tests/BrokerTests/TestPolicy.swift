import Policy
import Testing

/// The built-in rooms policy with another timing of the log.
enum TestPolicy {
    static func rooms(_ timing: LedgerTiming) throws -> Policy {
        let text = String(decoding: try #require(Policy.builtInBytes("rooms")), as: UTF8.self)
        let old = #""hourSeconds": 3600, "daySeconds": 86400, "batchSeals": 64"#
        try #require(text.contains(old))
        let new = """
            "hourSeconds": \(timing.hourSeconds), "daySeconds": \(timing.daySeconds), "batchSeals": \(timing.batchSeals)
            """
        return try Policy(Array(text.replacing(old, with: new).utf8))
    }

    /// Every window is an hour and a day: all that waits comes out with it.
    static func rooms(everyWindowOf resolution: UInt64) throws -> Policy {
        try rooms(LedgerTiming(hourSeconds: resolution, daySeconds: resolution, batchSeals: 1))
    }
}
