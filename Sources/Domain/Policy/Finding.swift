/// One reason why a policy is refused, with a remedy for its author.
public struct Finding: Sendable, Equatable, CustomStringConvertible {
    /// A JSON path such as `$.templates.peer_waiting.priority`.
    public let path: String
    public let problem: String
    public let reason: String
    public let remedy: String

    public var description: String { "\(path): \(problem)\n  why: \(reason)\n  do:  \(remedy)" }
}

/// A policy is invalid. Has all findings of the lint.
public struct PolicyError: Error, Sendable, Equatable, CustomStringConvertible {
    public let findings: [Finding]

    public var description: String {
        "The policy is refused for \(findings.count) reason(s).\n" + findings.map(\.description).joined(separator: "\n")
    }
}

/// A JSON path (RFC 9535). Unusual keys are quoted, and control characters are escaped for terminals.
struct JSONPath: Sendable {
    private(set) var text = "$"

    func member(_ key: String) -> JSONPath {
        var path = self
        path.text += Self.isPlain(key) ? ".\(key)" : "['\(Self.escaped(key))']"
        return path
    }

    func item(_ index: Int) -> JSONPath {
        var path = self
        path.text += "[\(index)]"
        return path
    }

    private static func isPlain(_ key: String) -> Bool {
        !key.isEmpty
            && key.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
                case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"): true
                default: false
                }
            }
    }

    private static func escaped(_ key: String) -> String {
        var text = ""
        for scalar in key.unicodeScalars {
            switch scalar {
            case "'", "\\": text += "\\\(scalar)"
            case _ where scalar.value < 0x20 || (0x7f...0x9f).contains(scalar.value):
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text
    }
}
