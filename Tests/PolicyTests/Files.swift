import Policy
import Testing
import Vocabulary

/// A file of `policies/` as text.
func text(_ name: String) throws -> String {
    String(decoding: try #require(Policy.builtInBytes(name)), as: UTF8.self)
}

func rooms() throws -> String { try text("rooms") }

/// A built-in policy, by name.
func builtIn(_ name: String) throws -> Policy { try #require(try Policy.builtIn(name)) }

extension Policy {
    /// The limits of a policy for rooms.
    var rooms: Limits {
        get throws {
            guard case .rooms(let limits) = limits else { throw PoliciesError.noRooms }
            return limits
        }
    }
}

/// The rooms policy with `old` replaced by `new`. `old` must occur once.
func rooms(_ old: String, _ new: String) throws -> [UInt8] { try edited("rooms", (old, new)) }

/// A built-in policy with each `old` replaced by `new`. Each must occur once.
func edited(_ name: String, _ edits: (old: String, new: String)...) throws -> [UInt8] {
    var text = try text(name)
    for (old, new) in edits {
        let range = try #require(text.firstRange(of: old), "\(name).json does not say \(old)")
        try #require(text[range.upperBound...].firstRange(of: old) == nil, "\(name).json says \(old) twice")
        text = text.replacingCharacters(in: range, with: new)
    }
    return Array(text.utf8)
}

/// The rooms policy with one template `t` of its own.
func rooms(template: String) throws -> [UInt8] {
    let text = try rooms()
    let start = try #require(text.firstRange(of: "\"templates\": {")?.upperBound)
    return Array((text[..<start] + "\"t\": " + template + "}}").utf8)
}

extension String {
    fileprivate func replacingCharacters(in range: Range<String.Index>, with new: String) -> String {
        String(self[..<range.lowerBound]) + new + self[range.upperBound...]
    }
}

extension Policy {
    func render(
        _ template: String, handle: Handle, fields: [String: FieldValue] = [:], nowMs: UInt64 = 0
    ) throws -> RenderedPush {
        try #require(templates[template]).render(handle: handle, fields: fields, nowMs: nowMs)
    }
}

func render(
    _ template: String, handle: Handle = Handle(.max), _ fields: [String: FieldValue] = [:],
    nowMs: UInt64 = 0
)
    throws -> String
{
    let push = try Policy(rooms(template: template)).render("t", handle: handle, fields: fields, nowMs: nowMs)
    return String(decoding: push.payload, as: UTF8.self)
}
