/// One of a command's words, as `--help` tells of it: alone, or with the others of its family.
struct Subcommand {
    let name: String
    /// What may stand behind the name, one form each.
    let forms: [String]
    /// What it does; lines after the first are continued.
    let text: String
    /// Its own flags that need a word: `--since`, and what it says.
    let flags: [(name: String, text: String)]
    let keys: [Key]

    init(_ name: String, _ forms: [String], _ text: String, flags: [(String, String)] = [], keys: [Key] = []) {
        (self.name, self.forms, self.text, self.keys) = (name, forms, text, keys)
        self.flags = flags.map { (name: $0.0, text: $0.1) }
    }

    /// The help for the subcommand that the words name, or else for all of them.
    static func help(_ words: [String], _ command: String, _ family: [Subcommand]) -> String {
        let named = family.filter { words.first == $0.name }
        let told = named.isEmpty ? family : named
        let calls = told.flatMap { one in one.forms.map { "mayfly \(command) \(one.name)" + ($0.isEmpty ? "" : " " + $0) } }
        var lines = ["usage: " + calls.joined(separator: "\n       ")]
        var flags: [(name: String, text: String)] = []
        var keys: [Key] = []
        for one in told {
            flags += one.flags.filter { flag in !flags.contains { $0.name == flag.name } }
            keys += one.keys.filter { !keys.contains($0) }
        }
        let width = (told.map(\.name) + flags.map(\.name)).map(\.count).max() ?? 0
        for (name, text) in told.map({ ($0.name, $0.text) }) + flags.map({ ($0.name, $0.text) }) {
            let margin = String(repeating: " ", count: width + 4)
            let column = "  " + name + margin.dropFirst(name.count + 2)
            lines.append(column + text.split(separator: "\n").joined(separator: "\n" + margin))
        }
        return Terminal.help(lines.joined(separator: "\n"), keys)
    }
}
