import EventLoop
import HTTPServer
import JSON
import Ledger
import Linux
import Policy
import TLS
import Vocabulary

/// `mayfly audit verify|prove|show|watch DIR|URL`.
enum AuditCommand {
    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "audit", subcommands)) }
        do {
            try await runSubcommand(words)
        } catch let failure as VerificationFailure {
            throw failure.code == .folder ? CheckFailed("not checked: \(failure)", status: 3) : CheckFailed("bad: \(failure)")
        }
    }

    private static func runSubcommand(_ words: [String]) async throws {
        guard let first = words.first, !first.hasPrefix("--") else {
            throw UsageError("unknown audit command. Use verify, watch, prove, show, report or page; see --help")
        }
        if ["report", "page"].contains(first) { return try await ReportCommand.run(words) }
        if first == "watch" { return try await WatchCommand.run(words) }
        let configuration = try Configuration(
            words, keys: [], switches: ["json", "allow-gaps", "unique"],
            options: ["key", "since", "policy", "max-age", "out", "proof", "ref"])
        let (words, proof) = (configuration.operands, try configuration.option("proof"))
        try checkOptions(of: words.first, isProof: proof != nil, configuration)
        guard let text = try configuration.option("key") else {
            throw UsageError("--key is missing: the line in ledger.vkey")
        }
        let key = try verifierKey(text)
        let maxAge = try configuration.option("max-age").map(seconds)
        switch (words.first, words.count) {
        case ("verify", 1) where proof != nil:
            try ProofCommand.verify(
                proof!, key, ref: try configuration.option("ref").map(ref), demand: try demand(configuration),
                json: configuration.has("json"))
        case ("verify", 2) where proof == nil: try await verify(ShownSource(try source(words[1])), key, maxAge, configuration)
        case ("prove", 3):
            let subject = try ProofCommand.Subject(words[2])
            try await ProofCommand.prove(ShownSource(try source(words[1])), key, subject, out: configuration.option("out"))
        case ("show", 2):
            let source = try source(words[1])
            if let text = try configuration.option("ref") {
                try await show(try ref(text), in: source, key)
            } else {
                try await show(source, key)
            }
        default:
            throw UsageError(
                "audit needs a subcommand and one DIR or URL. `prove` also needs a REF or INDEX, and `verify --proof` needs no log; see --help"
            )
        }
    }

    /// - Throws: `UsageError` for an option that the subcommand would ignore: the user would believe in a check that never ran.
    private static func checkOptions(of word: String?, isProof: Bool, _ configuration: Configuration) throws {
        let (name, known): (String, Set<String>) =
            switch word {
            case "verify" where isProof: ("verify --proof", ["key", "proof", "ref", "policy", "json"])
            case "verify": ("verify", ["key", "since", "policy", "max-age", "allow-gaps", "unique", "json"])
            case "prove": ("prove", ["key", "out"])
            case "show": ("show", ["key", "ref"])
            default:
                throw UsageError(
                    "unknown audit command. Use verify, watch, prove, show, report or page; see --help\(Spelling.hint(word ?? "", subcommands.map(\.name)))"
                )
            }
        let given = Set(configuration.repeated.keys).union(configuration.switches)
        guard let other = given.subtracting(known).min() else { return }
        throw UsageError(
            "--\(other) is not an option of `audit \(name)`"
                + (other == "ref"
                    ? ". `audit show --ref` prints a token's history; `audit prove` expects the ref right after the log" : ""))
    }

    /// - Throws: `UsageError` if the text isn't a ref.
    static func ref(_ text: String) throws -> Ref {
        let digits = text.lowercased().utf8.filter { $0 > 0x20 }
        guard let ref = Ref(hex: digits.span) else { throw UsageError("--ref must be 32 digits 0-9 a-f") }
        return ref
    }

    fileprivate static func seconds(_ text: String) throws -> UInt64 {
        guard let seconds = UInt64(text), seconds > 0, seconds <= UInt64(Int64.max) else {
            throw UsageError("--max-age must be a whole number of seconds, at least 1")
        }
        return seconds
    }

    static func verifierKey(_ text: String) throws -> VerifierKey {
        if let key = VerifierKey(text) { return key }
        let bytes: [UInt8]
        do {
            bytes = try File.read(text, limit: 4_096)
        } catch {
            throw UsageError(
                "--key: \(ShownPath(text)) is no verifier key NAME+ID+KEY, and as a file it can't be read: \(error.reason)")
        }
        guard let line = String(decoding: bytes, as: UTF8.self).split(separator: "\n").first, let key = VerifierKey(String(line))
        else { throw UsageError("--key: the file \(ShownPath(text)) doesn't begin with a verifier key NAME+ID+KEY") }
        return key
    }

    static func source(_ place: String) throws -> any LogSource {
        guard place.hasPrefix("http://") || place.hasPrefix("https://") else {
            guard try File.status(place)?.kind == .folder else {
                throw CheckFailed("bad: \(ShownPath(place)) is not a folder. A URL must begin with http:// or https://")
            }
            return FolderSource(place)
        }
        return try WebSource(place)
    }

    private static func verify(
        _ source: any LogSource, _ key: VerifierKey, _ maxAge: UInt64?, _ configuration: Configuration
    ) async throws {
        let older = try (configuration.repeated["since"] ?? []).map { path in
            let file = GivenFile(path, "--since")
            return Verifier.OlderCheckpoint(name: "\(file)", bytes: try file.read(limit: 65_536))
        }
        let demand = try demand(configuration)
        do throws(VerificationFailure) {
            let report = try await Verifier(
                source, key: key, demand: demand, allowsGaps: configuration.has("allow-gaps"), unique: configuration.has("unique")
            ).verify(since: older)
            let now = Clock.wallMs / 1_000
            if let maxAge { try report.checkAge(limit: maxAge, now: now) }
            Terminal.out(
                configuration.has("json")
                    ? json(report, now: now) : "\(report.verdict.words): \(report); \(report.ageText(now: now))")
            if report.verdict == .consistent { Terminal.error(notCompared) }
        } catch {
            if configuration.has("json") { Terminal.out(json(error)) }
            throw error
        }
    }

    /// On standard error, since a script may discard the verdict and only read the exit status, which is 0.
    private static let notCompared =
        "not compared with anything earlier: a log that was rewritten before looks the same. Pass a checkpoint kept from earlier with --since, "
        + "or witnesses with --policy. Keep this log's checkpoint for the next time"

    fileprivate static func demand(_ configuration: Configuration) throws -> WitnessDemand? {
        try configuration.option("policy").map { path in
            WitnessDemand(try WitnessSettings.policy(GivenFile(path, "--policy")), now: Clock.wallMs / 1_000)
        }
    }

    private static func show(_ source: any LogSource, _ key: VerifierKey) async throws {
        guard let bytes = try await source.read("checkpoint"), let head = SignedNote(bytes)?.checkpoint(signedBy: key) else {
            throw CheckFailed("bad: the log has no checkpoint signed by this key")
        }
        var tree = try await SignedTree(source, head: head)
        for bundle in 0..<tree.bundles {
            // Canonical text has no line breaks, so one entry can't look like several.
            for entry in try await tree.canonicalEntries(bundle: bundle) { Terminal.out(entry) }
        }
    }

    /// Prints the history of one token.
    private static func show(_ ref: Ref, in source: any LogSource, _ key: VerifierKey) async throws {
        let story = try await TokenStory.find(in: source, key: key, ref: ref)
        let openings = story.pushes.count == 1 ? "1 opening is" : "\(story.pushes.count) openings are"
        Terminal.out(
            "\(story)\n\(openings) in the log, which ends at \(story.end). "
                + "If the phone got a push two minutes or more before that, and it is missing here, the broker hid it")
    }

    private static func json(_ report: Report, now: UInt64) -> String {
        Terminal.json { json in
            json.add("good", true)
            json.add("verdict", report.verdict.rawValue)
            json.add("origin", report.origin)
            json.add("size", report.size)
            json.add("sealed", report.sealed)
            json.add("carried", report.carried)
            json.add("live", report.live)
            json.add("purged", report.purged)
            json.add("opened", report.opened)
            json.add("delivered", report.delivered)
            json.add("failed", report.failed)
            json.add("pending", report.pending)
            json.add("bucketsClosed", report.bucketsClosed)
            json.add("gapSeconds", report.gapSeconds)
            json.add("hourSeconds", orNull: report.timing?.hourSeconds)
            json.add("daySeconds", orNull: report.timing?.daySeconds)
            json.add("batchSeals", orNull: report.timing?.batchSeals)
            json.add("unique", report.isUnique)
            json.add("next", orNull: report.next)
            json.add("compared", report.compared)
            json.add("cosignatures", orNull: report.cosignatures)
            json.add("age", orNull: report.age(now: now))
        }
    }

    static func json(_ failure: VerificationFailure) -> String {
        Terminal.json { json in
            json.add("good", false)
            json.add("verdict", "bad")
            json.add("code", failure.code.rawValue)
            json.add("detail", failure.description)
        }
    }

    fileprivate static let keyFlag = ("--key", "the log's public key: the line in ledger.vkey, or a file that contains it")
    fileprivate static let policyFlag = (
        "--policy", "a C2SP tlog-policy file: its quorum of witnesses must have cosigned the checkpoint"
    )

    fileprivate static let gapsFlag = ("--allow-gaps", "allow more than an hour a day without a running broker")

    private static let subcommands = [
        Subcommand(
            "verify",
            [
                "DIR|URL --key VKEY [--since CHECKPOINT-FILE]... [--policy FILE] [--max-age SECONDS] [--allow-gaps] [--unique] [--json]",
                "--proof FILE --key VKEY [--ref REF] [--policy FILE] [--json]",
            ],
            "check a log: exit 0 with one line of figures, or exit 1 with the fault and its place. The line begins with `good`, or\n"
                + "with `consistent, not compared` without --since or --policy: then a log that was rewritten before looks the same",
            flags: [
                keyFlag, ("--since", "a checkpoint kept from earlier, which the log must continue"), policyFlag,
                ("--max-age", "how old the last entry may be, e.g. 900: a running broker adds one every five minutes"),
                gapsFlag, ("--unique", "also check that ids are unique, by sorting them in a temporary file"),
                ("--proof", "a proof file to check without the log: exit 0 with what it proves, or exit 1 with the fault"),
                ("--ref", "the ref of the token that the proved entry must be about"),
            ]),
        WatchCommand.subcommand,
        Subcommand(
            "prove", ["DIR|URL REF|INDEX --key VKEY [--out FILE]"],
            "write a proof that an entry is in the log. For a ref this is the token's purge, or until then\nits latest seal or opening",
            flags: [keyFlag, ("--out", "the file to write, - for standard output. Default: INDEX.tlog-proof in this folder")]),
        Subcommand(
            "show", ["DIR|URL --key VKEY [--ref REF]"],
            "print the log's entries, one per line; with --ref the history of one token, in words",
            flags: [keyFlag, ("--ref", "the ref of one token: only its owner knows it")]),
        Subcommand(
            "report", ["DIR|URL --html FILE [--key VKEY]"],
            "write one HTML file that contains the log (64 MiB at most) and checks it in any browser",
            flags: [keyFlag]),
        Subcommand(
            "page", ["DIR [--key VKEY]"],
            "write the auditor's page into a folder, for a static server that publishes the log's files there",
            flags: [keyFlag]),
    ]
}

/// `mayfly audit watch`: checks new entries of a log, as an auditor's cron job.
private enum WatchCommand {
    static func run(_ words: [String]) async throws {
        let configuration = try Configuration(
            words, keys: [], switches: ["allow-gaps"],
            options: ["key", "state", "mirror", "policy", "max-age"])
        let operands = configuration.operands
        guard operands.count == 2 else { throw UsageError("audit watch needs one DIR or URL") }
        guard let text = try configuration.option("key") else { throw UsageError("--key is missing: the line in ledger.vkey") }
        guard let folder = try configuration.option("state") else {
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
        Terminal.out(try await watch.run(now: Clock.wallMs / 1_000))
    }

    fileprivate static let subcommand = Subcommand(
        "watch",
        ["DIR|URL --key VKEY --state DIR [--mirror DIR|URL]... [--policy FILE] [--max-age SECONDS] [--allow-gaps]"],
        "for cron: verify new entries since the last run, and exit with one line: 0 no fault, 1 bad, 3 if the folder of --state\n"
            + "can't be used and nothing was checked. Checks that the log continues the kept checkpoint, that its last entry is\n"
            + "recent, and that mirrors and witnesses have seen the same log",
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

/// A published log at a URL.
struct WebSource: LogSource {
    private let client: HTTPClient
    private let prefix: String

    init(_ url: String) throws {
        let loop = try EventLoop(name: "client")
        try loop.start()
        client = HTTPClient(loop: loop, tls: try TLSContext.client(trust: .system, alpn: ["http/1.1"]))
        prefix = url.hasSuffix("/") ? url : url + "/"
    }

    func read(_ path: String) async throws -> [UInt8]? {
        let answer = try await client.send(prefix + path, timeoutMs: 30_000, maximumBytes: 17_000_000)
        switch answer.status {
        case 200: return answer.body
        case 404, 410: return nil
        default: throw CheckFailed("\(prefix)\(path) answered \(answer.status)")
        }
    }
}
