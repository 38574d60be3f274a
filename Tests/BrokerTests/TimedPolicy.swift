import Policy
import Testing

/// The rooms policy with send slot and jitter.
struct TimedPolicy {
    let policy: Policy

    /// - Parameters:
    ///   - timing: members of the template, with a comma behind each.
    ///   - limits: what stands in the limits and what is to stand in its place.
    init(_ timing: String, ttlSeconds: Int = 120, limits: [(old: String, new: String)] = []) throws {
        var text = String(decoding: try #require(Policy.builtInBytes("rooms")), as: UTF8.self)
        func replace(_ old: String, _ new: String) throws {
            let place = try #require(text.firstRange(of: old), "rooms.json does not say \(old)")
            text = String(text[..<place.lowerBound]) + new + String(text[place.upperBound...])
        }
        try replace(#""ttlSeconds": 120,"#, "\"ttlSeconds\": \(ttlSeconds), \(timing)")
        for limit in limits { try replace(limit.old, limit.new) }
        policy = try Policy(Array(text.utf8))
    }
}
