import Linux

/// A file that a setting, an operand or a word of a list names, and the one way in which errors tell of it.
///
/// In its place a secret may stand by mistake. So the setting is named, and the path only as `ShownPath` has it: never out of an error of a
/// call, where a folder may stand before it and make it look like one.
struct GivenFile: Sendable, CustomStringConvertible {
    /// What names it: `--apns-key-path (APNS_KEY_PATH)`, or a list and its line.
    let source: String
    /// Where it lies, to open it.
    let path: String
    /// For messages.
    let description: String

    /// - Parameters:
    ///   - folder: from where a relative path counts; nil: the working directory.
    ///   - isSecret: it is what holds a secret of a few words, which are easily taken for its name: never shown.
    init(_ given: String, _ source: String, in folder: String? = nil, isSecret: Bool = false) {
        self.source = source
        path = folder.map { given.hasPrefix("/") ? given : $0 + "/" + given } ?? given
        description = isSecret ? "the file named there" : ShownPath(given, in: folder).description
    }

    /// - Throws: `CommandFailed` that names the setting.
    func read(limit: Int) throws -> [UInt8] {
        do {
            return try File.read(path, limit: limit)
        } catch { throw failure("can't be read: \(error.reason)") }
    }

    /// - Parameter what: what is wrong with it.
    func failure(_ what: String) -> CommandFailed { CommandFailed("\(source): \(self) \(what)") }
}

/// A word of the command line, as errors repeat it: a name that was mistyped, and no secret that stands in its place.
struct ShownWord: CustomStringConvertible {
    let description: String

    init(_ word: String) {
        let letters = word.utf8.filter { (0x61...0x7a).contains($0 | 0x20) }
        let isHex = letters.allSatisfy { $0 | 0x20 <= UInt8(ascii: "f") }
        let isName = letters.count > 0 && word.utf8.allSatisfy { (0x61...0x7a).contains($0 | 0x20) || $0 == 0x2d || $0 == 0x5f }
        description = isName && word.utf8.count <= 32 && !(isHex && letters.count >= 16) ? word : "<\(word.utf8.count) bytes>"
    }
}
