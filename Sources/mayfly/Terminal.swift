import JSON
import Linux
import Vocabulary

/// What commands print, and how they end.
enum Terminal {
    static func out(_ text: String) { Standard.output(text + "\n") }

    /// One JSON object. What a terminal could take for a command is escaped too.
    static func json(_ write: (inout JSONWriter) -> Void) -> String {
        var json = JSONWriter()
        write(&json)
        return harmless(String(decoding: json.finish(), as: UTF8.self))
    }

    /// Text between quotes, as a JSON string.
    static func quoted(_ text: String) -> String { harmless(JSONString.quoted(text)) }

    private static func harmless(_ json: String) -> String {
        var text = ""
        for scalar in json.unicodeScalars {
            if ("\u{7f}"..."\u{9f}").contains(scalar) {
                text += "\\u00" + Hex.encode([UInt8(scalar.value)].span)
            } else {
                text.unicodeScalars.append(scalar)
            }
        }
        return text
    }

    static func error(_ text: String) { Standard.error(text + "\n") }

    /// One line of the service's log, with the time. Never anything that a caller sent.
    static func log(_ text: String) {
        Standard.error("\(Clock.wallMs / 1_000) \(text)\n")
    }

    /// The first line of standard input; nil for none.
    /// - Parameter usage: what it is read for, in a sentence.
    static func inputLine(limit: Int, _ usage: String) throws -> [UInt8]? {
        do throws(Standard.LineTooLong) {
            return try Standard.inputLine(limit: limit)
        } catch { throw UsageError("\(usage): \(error)") }
    }

    static func exit(_ status: Int32) -> Never { ProcessControl.exit(status) }

    /// Text of `--help` for a command: its keys with their manual.
    static func help(_ head: String, _ keys: [Key], shortFlags: Bool = false) -> String {
        var text = head
        for key in keys {
            text += "\n  --\(shortFlags ? key.shortFlag ?? key.rawValue : key.rawValue) (\(key.environment))\n      \(key.manual)"
        }
        return text
    }
}

/// A bad call. Exit 2: the program's name, then this text.
struct UsageError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// What kept a command from its work. Exit 1: the program's name, then this text.
struct CommandFailed: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// A check that came out wrong. Exit 1: only this text.
struct CheckFailed: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

extension [String] {
    var asksForHelp: Bool { contains("--help") || contains("-h") }
}
