import Broker
import Linux
import Storage
import Vocabulary

/// The parsed flags, environment and operands of one command.
struct Configuration {
    private var values: [Setting: String] = [:]
    /// The words of the command line that are no flags.
    private(set) var operands: [String] = []
    private(set) var switches: Set<String> = []
    private(set) var repeated: [String: [String]] = [:]
    private let shortFlags: Bool

    /// - Parameters:
    ///   - keys: the keys of this command.
    ///   - switches: its flags without a value, e.g. `json`.
    ///   - options: its own flags with a value, e.g. `since`. They may be repeated.
    /// - Throws: `UsageError` if a flag is unknown to the command, or a MAYFLY_ variable to all commands.
    init(
        _ arguments: [String], keys: [Setting], switches known: Set<String> = [], options: Set<String> = [],
        shortFlags: Bool = false
    ) throws {
        self.shortFlags = shortFlags
        var given: Set<Setting> = []
        for (name, value) in Environment.all {
            if let setting = Setting.allCases.first(where: { $0.environment == name }) {
                values[setting] = value
            } else {
                try Self.checkUnknown(name)
            }
        }
        var rest = arguments[...]
        while let word = rest.popFirst() {
            guard word.hasPrefix("--"), word.count > 2 else {
                operands.append(word)
                continue
            }
            let parts = word.dropFirst(2).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            let flag = parts[0]
            if known.contains(flag), parts.count == 1 {
                switches.insert(flag)
                continue
            }
            let setting = keys.first { $0.rawValue == flag || shortFlags && $0.shortFlag == flag }
            guard setting != nil || options.contains(flag) else {
                let names =
                    keys.map(\.rawValue) + (shortFlags ? keys.compactMap(\.shortFlag) : []) + known.sorted() + options.sorted()
                let hint = Spelling.hint(flag, names, prefix: "--")
                throw UsageError("--\(ShownWord(flag)) is not a flag of this command\(hint.isEmpty ? ": see --help" : hint)")
            }
            guard let value = parts.count == 2 ? parts[1] : rest.popFirst() else { throw UsageError("--\(flag) needs a value") }
            if let setting {
                guard given.insert(setting).inserted else { throw UsageError("--\(flag) is given twice. Remove one of them") }
                values[setting] = value
            } else {
                repeated[flag, default: []].append(value)
            }
        }
    }

    /// Refuses a variable that no setting has, if it begins like Mayfly's or is nearly the name of one. Others are other programs'.
    private static func checkUnknown(_ name: String) throws {
        let isOwn = name.hasPrefix("MAYFLY_")
        // Most variables are other programs'. Each start sees all of them, so it compares their first words only.
        let (first, families) = (String(name.prefix { $0 != "_" }), ["MAYFLY", "APNS", "COMETCHAT"])
        guard families.contains(first) || Spelling.nearest(to: first, in: families) != nil, name != WebhookSettings.variable
        else { return }
        let names = Setting.allCases.map(\.environment) + [WebhookSettings.variable]
        if let meant = Spelling.nearest(to: name, in: names, mistakes: isOwn ? 3 : 2) {
            throw UsageError("\(name) is not a setting of Mayfly. Did you mean \(meant)?")
        }
        guard isOwn else { return }
        let hint = Spelling.hint(name, names)
        throw UsageError(
            "\(ShownWord(name)) is not a setting of Mayfly\(hint.isEmpty ? ": `mayfly serve --help` lists them" : hint)")
    }

    subscript(_ setting: Setting) -> String? { values[setting].flatMap { $0.isEmpty ? nil : $0 } }

    mutating func setDefault(_ setting: Setting, _ value: String) {
        if self[setting] == nil { values[setting] = value }
    }

    /// Returns whether one of the command's own switches is set, e.g. `json`.
    func has(_ name: String) -> Bool { switches.contains(name) }

    /// Returns the value of one of the command's own options.
    /// - Throws: `UsageError` if it is given more than once.
    func option(_ name: String) throws -> String? {
        let values = repeated[name] ?? []
        guard values.count < 2 else { throw UsageError("--\(name) is given twice. Remove one of them") }
        return values.first
    }

    /// The setting as errors show it, e.g. `--state (MAYFLY_STATE)`.
    func name(_ setting: Setting) -> String {
        "--\(shortFlags ? setting.shortFlag ?? setting.rawValue : setting.rawValue) (\(setting.environment))"
    }

    /// - Parameter what: the error, as text that follows the setting's name.
    func invalid(_ setting: Setting, _ what: String) -> UsageError { UsageError("\(name(setting)) \(what)") }

    func required(_ setting: Setting) throws -> String {
        guard let value = self[setting] else { throw invalid(setting, "is missing: \(setting.manual)") }
        return value
    }

    /// Returns the value, or the standard one if none is set.
    func value(_ setting: Setting) -> String { self[setting] ?? setting.standard ?? "" }

    func number(_ setting: Setting) throws -> Int {
        guard let number = Int(value(setting)), setting.range?.contains(number) == true else {
            throw invalid(
                setting, "must be a whole number from \(setting.range?.lowerBound ?? 0) to \(setting.range?.upperBound ?? 0)")
        }
        return number
    }

    func address(_ setting: Setting) throws -> SocketAddress {
        let text = value(setting)
        guard let address = SocketAddress(parsing: text) else {
            if text.hasPrefix("unix:") {
                throw invalid(setting, "must be a path of 1 to 107 bytes for a Unix-domain socket, not \(text.utf8.count - 5)")
            }
            throw invalid(setting, "must be ADDRESS:PORT, e.g. 127.0.0.1:8787. \(setting.manual)")
        }
        return address
    }

    /// Returns the setting's file, or nil if it isn't set.
    /// - Throws: `UsageError` if the path is relative and nothing is there. An absolute path may appear later, e.g. with a mount.
    func file(_ setting: Setting) throws -> GivenFile? {
        guard let path = self[setting] else { return nil }
        let file = GivenFile(path, name(setting), isSecret: setting.isSecret)
        try file.refuseRootsCopy()
        guard path.hasPrefix("/") || File.exists(path) else {
            throw UsageError(
                "\(file.source): \(file) doesn't exist below the working directory. Correct it, or write an absolute path")
        }
        return file
    }

    func requiredFile(_ setting: Setting) throws -> GivenFile {
        _ = try required(setting)
        return try file(setting)!
    }

    var state: StateFolder {
        get throws {
            let database = try self[.database].map { text in
                guard let address = DatabaseAddress(text) else {
                    throw invalid(.database, "must be a path that ends with .sqlite, or postgresql://USER@HOST/NAME")
                }
                return address
            }
            return StateFolder(path: self[.state], ratchetKey: self[.ratchetKey], database: database)
        }
    }
}

/// A file named by a setting, an operand or a line of a list.
///
/// A user may write a secret in place of a file's name. So errors show the setting, and the path only as `ShownPath` does.
struct GivenFile: Sendable, CustomStringConvertible {
    /// The setting, e.g. `--apns-key-path (APNS_KEY_PATH)`, or a list and its line.
    let source: String
    let path: String
    /// The path as messages may show it.
    let description: String

    /// - Parameters:
    ///   - folder: the base of a relative path. Nil for the working directory.
    ///   - isSecret: the path is never shown, because users easily write the secret itself.
    init(_ given: String, _ source: String, in folder: String? = nil, isSecret: Bool = false) {
        self.source = source
        path = folder.map { given.hasPrefix("/") ? given : $0 + "/" + given } ?? given
        description = isSecret ? "the file named there" : ShownPath(given, in: folder).description
    }

    /// - Throws: `CommandFailed` with the setting's name.
    func read(limit: Int) throws -> [UInt8] {
        do {
            return try File.read(path, limit: limit)
        } catch { throw failure("can't be read: \(error.reason)") }
    }

    /// Reads the file's first line. The caller wipes it.
    func firstLine(limit: Int) throws -> [UInt8] {
        var text = try read(limit: limit)
        guard let end = text.firstIndex(of: UInt8(ascii: "\n")) else { return text }
        let count = end > 0 && text[end - 1] == UInt8(ascii: "\r") ? end - 1 : end
        // In place, so that no copy of the rest is left.
        for index in text.indices.dropFirst(count) { text[index] = 0 }
        text.removeLast(text.count - count)
        return text
    }

    /// - Throws: `UsageError` for an unreadable file in root's folder of credentials. A later try wouldn't find it either.
    func refuseRootsCopy() throws(UsageError) {
        let folder = "/etc/mayfly/credentials/"
        guard path.hasPrefix(folder), !File.isReadable(path) else { return }
        let own = Environment.all.first { $0.name == "CREDENTIALS_DIRECTORY" }?.value ?? "/run/credentials/mayfly.service"
        let copy = "\(own)/file_\(path.dropFirst(folder.count))"
        throw UsageError(
            "\(source): only root can read \(folder). The service has its own copy: set this to \(GivenFile(copy, source)). Restart the service if the file is new"
        )
    }

    /// Logs a warning if other users can read the file.
    /// - Parameter content: what the file contains.
    func warnIfExposed(_ content: String) {
        guard let status = try? File.status(path), status.kind == .file, status.mode & 0o077 != 0 else { return }
        Terminal.log(
            .warning, "\(source): other users can \(status.othersAccess ?? "read") \(self), \(content). Set its mode to 0600")
    }

    /// - Parameter what: the error, as text that follows the file's name.
    func failure(_ what: String) -> CommandFailed { CommandFailed("\(source): \(self) \(what)") }
}

/// A word of the command line for error messages. Shows a mistyped name, but not a word that could be a secret.
struct ShownWord: CustomStringConvertible {
    let description: String

    init(_ word: String) {
        let letters = word.utf8.filter { (0x61...0x7a).contains($0 | 0x20) }
        let isHex = letters.allSatisfy { $0 | 0x20 <= UInt8(ascii: "f") }
        let isName = letters.count > 0 && word.utf8.allSatisfy { (0x61...0x7a).contains($0 | 0x20) || $0 == 0x2d || $0 == 0x5f }
        description = isName && word.utf8.count <= 32 && !(isHex && letters.count >= 16) ? word : "<\(word.utf8.count) bytes>"
    }
}
