import Broker
import Linux
import Policy

/// `mayfly policy lint|show`.
enum PolicyCommand {
    static func run(_ words: [String]) throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "policy", subcommands)) }
        let configuration = try Configuration(words, environment: Environment.all, keys: [.policy])
        switch (configuration.operands.first, Array(configuration.operands.dropFirst())) {
        case ("lint", let files) where !files.isEmpty: try lint(files)
        case ("show", let names) where names.count <= 1:
            let named = names.first.map { GivenFile($0, "policy show") }
            Terminal.out(try load(named ?? given(configuration)).summary())
        default: throw UsageError("policy takes lint FILE... or show [FILE|NAME]")
        }
    }

    /// The policy that the settings name.
    static func load(_ configuration: Configuration) throws -> Policy { try load(given(configuration)) }

    private static func given(_ configuration: Configuration) -> GivenFile {
        configuration.file(.policy) ?? GivenFile("rooms", Key.policy.named)
    }

    /// A file if there is one of that name, else a built-in policy.
    private static func load(_ file: GivenFile) throws -> Policy {
        if !File.exists(file.path) {
            guard let policy = try Policy.builtIn(file.path) else {
                let word = "\(ShownWord(file.path))"
                throw UsageError(
                    "\(file.source): \(word == file.path ? word : "\(file)") is neither a policy file nor a built-in policy")
            }
            return policy
        }
        let bytes = try file.read(limit: Policy.maximumCount + 1)
        do {
            return try Policy(bytes)
        } catch {
            throw CheckFailed("mayfly: \(file.source): \(file): \(error)")
        }
    }

    /// A policy is good by itself without the push that rooms send, but not for a broker.
    struct NoKnock: Error, CustomStringConvertible {
        var description: String { "has no template \(Broker.template) without fields, which rooms send" }
    }

    /// What a knock sends.
    static func knock(_ policy: Policy) throws(NoKnock) -> Template {
        guard let template = policy.templates[Broker.template], template.fields.isEmpty else { throw NoKnock() }
        return template
    }

    private static func lint(_ files: [String]) throws {
        var refused = 0
        for file in files.map({ GivenFile($0, "policy lint") }) {
            let bytes = try file.read(limit: Policy.maximumCount + 1)
            var findings = Policy.lint(bytes).map { "\($0)" }
            if findings.isEmpty {
                let policy = try Policy(bytes)
                do throws(NoKnock) { _ = try knock(policy) } catch { findings = ["\(error)"] }
            }
            for finding in findings { Terminal.out("\(file): \(finding)") }
            if findings.isEmpty { Terminal.out("\(file): good") }
            refused += findings.count
        }
        if refused > 0 { throw CheckFailed("\(refused) finding\(refused == 1 ? "" : "s")") }
    }

    private static let subcommands = [
        Subcommand("lint", ["FILE..."], "every reason why a policy would be refused; exit 1 if there is one"),
        Subcommand(
            "show", ["[FILE|NAME]"],
            "limits, pushes, what their time tells, and the probability of guessing a join code; default: rooms", keys: [.policy]),
    ]
}
