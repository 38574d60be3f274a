import Linux

/// The configuration of one command: checked words, before anything is opened.
struct Configuration {
    private var values: [Key: String] = [:]
    /// What stood on the command line beside flags.
    private(set) var operands: [String] = []
    private(set) var switches: Set<String> = []
    private(set) var repeated: [String: [String]] = [:]
    private let shortFlags: Bool

    /// - Parameters:
    ///   - keys: the keys this command takes.
    ///   - switches: its flags without a value, e.g. `json`.
    ///   - options: its own flags with a value that may come more than once, e.g. `since`.
    /// - Throws: `UsageError` for a word that the command does not know, or a MAYFLY_ variable that no command knows.
    init(
        _ arguments: [String], keys: [Key], switches known: Set<String> = [], options: Set<String> = [], shortFlags: Bool = false
    ) throws {
        self.shortFlags = shortFlags
        for (name, value) in Environment.all {
            if let key = Key.allCases.first(where: { $0.environment == name }) {
                values[key] = value
            } else if name.hasPrefix("MAYFLY_") {
                throw UsageError("\(ShownWord(name)) is not a setting of Mayfly: `mayfly serve --help` lists them")
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
            let key = keys.first { $0.rawValue == flag || shortFlags && $0.shortFlag == flag }
            guard key != nil || options.contains(flag) else {
                throw UsageError("--\(ShownWord(flag)) is not a flag of this command: see --help")
            }
            guard let value = parts.count == 2 ? parts[1] : rest.popFirst() else { throw UsageError("--\(flag) needs a value") }
            if let key { values[key] = value } else { repeated[flag, default: []].append(value) }
        }
    }

    subscript(_ key: Key) -> String? { values[key].flatMap { $0.isEmpty ? nil : $0 } }

    mutating func setDefault(_ key: Key, _ value: String) {
        if self[key] == nil { values[key] = value }
    }

    /// Whether one of the command's own switches is given, e.g. `json`.
    func has(_ name: String) -> Bool { switches.contains(name) }

    /// The value of one of the command's own options. The last one counts.
    func option(_ name: String) -> String? { repeated[name]?.last }

    /// As the command's help has it.
    private func flag(_ key: Key) -> String { shortFlags ? key.shortFlag ?? key.rawValue : key.rawValue }

    /// As errors name it, `--state (MAYFLY_STATE)`.
    func name(_ key: Key) -> String { "--\(flag(key)) (\(key.environment))" }

    /// - Parameter what: what is wrong with the setting, after its name.
    func invalid(_ key: Key, _ what: String) -> UsageError { UsageError("\(name(key)) \(what)") }

    func required(_ key: Key) throws -> String {
        guard let value = self[key] else { throw invalid(key, "is missing: \(key.manual)") }
        return value
    }

    func number(_ key: Key, in range: ClosedRange<Int>, default standard: Int) throws -> Int {
        guard let text = self[key] else { return standard }
        guard let number = Int(text), range.contains(number) else {
            throw invalid(key, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    func address(_ key: Key, default text: String) throws -> SocketAddress {
        let text = self[key] ?? text
        guard let address = SocketAddress(parsing: text) else {
            if text.hasPrefix("unix:") {
                throw invalid(key, "must be a path of 1 to 107 bytes for a Unix-domain socket, not \(text.utf8.count - 5)")
            }
            throw invalid(key, "must be ADDRESS:PORT: \(key.manual)")
        }
        return address
    }

    /// The file that a setting names, if it does.
    func file(_ key: Key) -> GivenFile? { self[key].map { GivenFile($0, name(key), isSecret: key.isSecret) } }

    func requiredFile(_ key: Key) throws -> GivenFile {
        GivenFile(try required(key), name(key), isSecret: key.isSecret)
    }

    var state: StateFolder { StateFolder(path: self[.state], ratchetKey: self[.ratchetKey]) }
}
