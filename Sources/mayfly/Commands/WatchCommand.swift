import Ledger
import Linux

/// `mayfly audit watch`: an auditor's cron job.
enum WatchCommand {
    static func run(_ words: [String]) async throws {
        let configuration = try Configuration(
            words, keys: [], switches: ["allow-gaps"],
            options: ["key", "state", "mirror", "policy", "max-age"])
        let operands = configuration.operands
        guard operands.count == 2 else { throw UsageError("audit watch needs one DIR or URL") }
        guard let text = configuration.option("key") else { throw UsageError("--key is missing: the line in ledger.vkey") }
        guard let folder = configuration.option("state") else {
            throw UsageError("--state is missing: the auditor's own folder for checkpoints")
        }
        let key = try AuditCommand.verifierKey(text)
        let demand = try AuditCommand.demand(configuration)
        let maxAge = try configuration.option("max-age").map(AuditCommand.seconds) ?? 900
        let source = try AuditCommand.source(operands[1])
        let mirrors = try (configuration.repeated["mirror"] ?? []).map {
            let isURL = $0.hasPrefix("http") && PlainURL.isPlain($0)
            return LogWatch.Mirror(name: isURL ? $0 : ShownPath($0).description, source: try AuditCommand.source($0))
        }
        let watch = LogWatch(
            source, key: key, folder: folder, mirrors: mirrors, demand: demand,
            allowsGaps: configuration.has("allow-gaps"), maxAge: maxAge)
        do throws(VerificationFailure) {
            Terminal.out("good: \(try await watch.run(now: Clock.wallMs / 1_000))")
        } catch { throw CheckFailed("bad: \(error)") }
    }

    static let subcommand = Subcommand(
        "watch",
        ["DIR|URL --key VKEY --state DIR [--mirror DIR|URL]... [--policy FILE] [--max-age SECONDS] [--allow-gaps]"],
        "for cron: verify new entries since the last run, and exit 0 or 1 with one line. Checks that the log continues the\n"
            + "kept checkpoint, that its last entry is recent, and that mirrors and witnesses have seen the same log",
        flags: [
            AuditCommand.keyFlag,
            (
                "--state",
                "the auditor's own folder for verified checkpoints and the verifier's state. Without the state the whole\n"
                    + "log is verified again"
            ),
            ("--mirror", "another copy of the same log: its checkpoint and this one must have the same history"),
            AuditCommand.policyFlag, ("--max-age", "how old the last entry may be. Default: 900"), AuditCommand.gapsFlag,
        ])
}
