import Linux
import Policy
import Vocabulary

/// `mayfly policy lint|show|keys`.
enum PolicyCommand {
    static func run(_ words: [String]) throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "policy", subcommands)) }
        let configuration = try Configuration(words, keys: [.policy])
        switch (configuration.operands.first, Array(configuration.operands.dropFirst())) {
        case ("lint", let files) where !files.isEmpty: try lint(files)
        case ("show", let names) where names.count <= 1:
            let shown = try names.first.map { try load(list: $0, "policy show") } ?? inForce(configuration).all
            Terminal.out(shown.map { $0.summary() }.joined(separator: "\n"))
        case ("keys", []): Terminal.out(Policy.Kind.allCases.map(keys).joined(separator: "\n\n"))
        case (let word, _):
            let hint = Spelling.hint(word ?? "", subcommands.map(\.name))
            throw UsageError("unknown policy command. Use lint FILE..., show [FILE|NAME,...] or keys\(hint)")
        }
    }

    /// The policies of `--policy`, and the built-in one for rooms if none of them is for rooms. The default depends on the configured JWTs
    /// and webhooks.
    static func inForce(_ configuration: Configuration) throws -> Policies {
        var policies = try load(list: configuration[.policy] ?? byDefault(configuration), Setting.policy.named)
        if !policies.contains(where: { $0.kind == .rooms }) {
            policies.append(try load(GivenFile("rooms", Setting.policy.named)))
        }
        do {
            return try Policies(policies)
        } catch {
            switch error {
            case .noRooms, .kindTwice: throw UsageError("\(Setting.policy.named): \(error)")
            case .nameTwice, .templateTwice, .incompatible: throw CommandFailed("\(error)")
            }
        }
    }

    private static func load(list: String, _ source: String) throws -> [Policy] {
        try list.split(separator: ",", omittingEmptySubsequences: false).map { name in
            guard !name.isEmpty else { throw UsageError("\(source) needs policy files and names, separated by single commas") }
            return try load(GivenFile(String(name), source))
        }
    }

    private static func byDefault(_ configuration: Configuration) -> String {
        if configuration[.jwtAlgorithm] == nil { return "rooms" }
        return "rooms,companion,monitor" + (WebhookSettings.areGiven(configuration) ? ",calls" : "")
    }

    /// Loads a file, or the built-in policy of that name if there is no such file.
    private static func load(_ file: GivenFile) throws -> Policy {
        if !File.exists(file.path) {
            guard let policy = try Policy.builtIn(file.path) else {
                let (word, names) = ("\(ShownWord(file.path))", Policy.builtInNames)
                let hint = Spelling.hint(file.path, names)
                let isPath = file.path.contains("/") || file.path.hasSuffix(".json")
                throw UsageError(
                    "\(file.source): \(word == file.path ? word : "\(file)") "
                        + (isPath ? "doesn't exist" : "is neither a policy file nor a built-in policy")
                        + "\(hint.isEmpty ? "." : hint) Built in are \(names.dropLast().joined(separator: ", ")) and \(names.last ?? "")"
                )
            }
            return policy
        }
        let bytes = try file.read(limit: Policy.maximumCount + 1)
        return try CommandFailed.naming("\(file.source): \(file)") { try Policy(bytes) }
    }

    private static func lint(_ files: [String]) throws {
        var refused = 0
        for file in files.map({ GivenFile($0, "policy lint") }) {
            let bytes = try file.read(limit: Policy.maximumCount + 1)
            var findings = Policy.lint(bytes).map { "\($0)" }
            if findings.isEmpty {
                // The policy is valid, but may lack a template that the broker needs.
                if let error = try Policy(bytes).incompatibility() { findings = ["\(error)"] }
            }
            for finding in findings { Terminal.out("\(file): \(finding)") }
            if findings.isEmpty { Terminal.out("\(file): good") }
            refused += findings.count
        }
        if refused > 0 { throw CheckFailed("\(refused) finding\(refused == 1 ? "" : "s")") }
    }

    /// The numbers that a policy of a kind has, one a line: key, bounds, meaning.
    private static func keys(_ kind: Policy.Kind) -> String {
        let rows =
            kind.limitRows.map { ("limits." + $0.key, $0) }
            + (kind == .rooms ? LedgerTiming.rows : []).map { ("ledger." + $0.key, $0) }
        let lines = rows.map { key, row in
            let bounds =
                "\(row.bounds.lowerBound) to \(row.bounds.upperBound)" + (row.defaultValue.map { ", default \($0)" } ?? "")
            return "  " + key.padded(44) + bounds.padded(30) + row.meaning
        }
        return ([kind.rawValue] + lines).joined(separator: "\n")
    }

    private static let subcommands = [
        Subcommand("lint", ["FILE..."], "report every reason why a policy would be refused; exit 1 if there is one"),
        Subcommand(
            "show", ["[FILE|NAME,...]"],
            "show limits, pushes, what their timing reveals, and the probability of guessing a join code. Default: the policies of --policy",
            keys: [.policy]),
        Subcommand("keys", [""], "list the numbers in policies of each kind, with their bounds and meaning"),
    ]
}
