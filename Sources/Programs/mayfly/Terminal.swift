import JSON
import Linux
import Vocabulary

/// Output and exit of commands.
enum Terminal {
    static func out(_ text: String) {
        Progress.clear()
        Standard.output(text + "\n")
    }

    /// Returns one JSON object. Characters that could control a terminal are escaped too.
    static func json(_ write: (inout JSONWriter) -> Void) -> String {
        var json = JSONWriter()
        write(&json)
        return harmless(String(decoding: json.finish(), as: UTF8.self))
    }

    /// Returns the text as a JSON string with quotes.
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

    static func error(_ text: String) {
        Progress.clear()
        Standard.error(text + "\n")
    }

    /// Returns the first line of standard input, or nil if there is none.
    /// - Parameter usage: one sentence about the purpose of the line, for the error.
    static func inputLine(limit: Int, _ usage: String) throws -> [UInt8]? {
        do throws(Standard.LineTooLong) {
            return try Standard.inputLine(limit: limit)
        } catch { throw UsageError("\(usage): \(error)") }
    }

    /// Returns the text of `--help` for a command: `head`, then its settings by group, each with its manual.
    static func help(_ head: String, _ settings: [Setting], shortFlags: Bool = false) -> String {
        var text = head
        for group in Setting.Group.allCases {
            let members = settings.filter { $0.group == group }
            if !members.isEmpty { text += "\n\n\(group.rawValue):" }
            for setting in members {
                let flag = shortFlags ? setting.shortFlag ?? setting.rawValue : setting.rawValue
                text += "\n  --\(flag) (\(setting.environment))\n      \(setting.manual)"
            }
        }
        return text
    }
}

/// An invalid call. Exits with 2 and prints the program's name and this text.
struct UsageError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// The reason why a command could not run. Exits with 1 and prints the program's name and this text.
struct CommandFailed: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }

    /// Runs `body`.
    /// - Throws: `CommandFailed` with `subject` before the error of `body`.
    static func naming<Value>(_ subject: String, _ body: () throws -> Value) throws(CommandFailed) -> Value {
        do { return try body() } catch { throw CommandFailed("\(subject): \(error)") }
    }
}

/// A failed check. Exits with `status` and prints only this text.
struct CheckFailed: Error, CustomStringConvertible {
    let description: String
    /// 1, or 3 for a check that was not made.
    let status: Int32
    init(_ description: String, status: Int32 = 1) { (self.description, self.status) = (description, status) }
}

extension [String] {
    var asksForHelp: Bool { contains("--help") || contains("-h") }
}

extension String {
    /// The text as a cell of a column, with at least one space after it.
    func padded(_ width: Int) -> String { self + String(repeating: " ", count: Swift.max(1, width - count)) }
}

/// The `--help` entry of a subcommand.
struct Subcommand {
    let name: String
    /// The possible arguments, one string per form of the call.
    let forms: [String]
    /// What the subcommand does. Lines after the first are indented.
    let text: String
    /// The flags that only this subcommand has, e.g. `--since`, and their meaning.
    let flags: [(name: String, text: String)]
    let keys: [Setting]

    init(_ name: String, _ forms: [String], _ text: String, flags: [(name: String, text: String)] = [], keys: [Setting] = []) {
        (self.name, self.forms, self.text, self.flags, self.keys) = (name, forms, text, flags, keys)
    }

    /// Returns the help of the subcommand in `words`, or of the whole family if `words` contains none.
    static func help(_ words: [String], _ command: String, _ family: [Subcommand]) -> String {
        let named = family.filter { words.first == $0.name }
        let shown = named.isEmpty ? family : named
        let calls = shown.flatMap { one in one.forms.map { "mayfly \(command) \(one.name)" + ($0.isEmpty ? "" : " " + $0) } }
        var lines = ["usage: " + calls.joined(separator: "\n       ")]
        var flags: [(name: String, text: String)] = []
        var keys: [Setting] = []
        for one in shown {
            flags += one.flags.filter { flag in !flags.contains { $0.name == flag.name } }
            keys += one.keys.filter { !keys.contains($0) }
        }
        let width = (shown.map(\.name) + flags.map(\.name)).map(\.count).max() ?? 0
        for (name, text) in shown.map({ ($0.name, $0.text) }) + flags.map({ ($0.name, $0.text) }) {
            let margin = String(repeating: " ", count: width + 4)
            let column = "  " + name + margin.dropFirst(name.count + 2)
            lines.append(column + text.split(separator: "\n").joined(separator: "\n" + margin))
        }
        return Terminal.help(lines.joined(separator: "\n"), keys)
    }
}
