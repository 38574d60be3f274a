import Ledger
import Linux
import Sealing
import TLS

/// `mayfly keys init|throwaway|rotate|show`.
enum KeysCommand {
    private static let keys: [Key] = [.state, .origin, .witnessPolicy, .witnessFailure]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help(
                    """
                    usage: mayfly keys init|throwaway|show [FLAGS]
                           mayfly keys rotate --origin NEW --archive DIR [--state DIR] [--witness-policy FILE]
                      init        make keys/ratchet.key, keys/ledger.key and ledger.vkey; never over anything
                      throwaway   the same, and an APNs key and certificate for the simulator: for development only
                      rotate      close the log, move it to DIR (which must not exist, or be empty) with its ledger.vkey, destroy its private key, and
                                  begin another log under NEW with another key. The broker must be stopped. After a crash run it again.
                                  The closed log's last checkpoint is cosigned as `serve` has it cosigned
                      show        what is there; nothing secret
                    """, keys))
        }
        let configuration = try Configuration(words, environment: Environment.all, keys: keys, options: ["archive"])
        let state = StateFolder(path: configuration.state)
        switch configuration.operands {
        case ["init"]: try make(state, origin: try configuration.required(.origin))
        case ["throwaway"]: try makeThrowaway(state, origin: configuration[.origin] ?? "mayfly.localhost/audit")
        case ["show"]: try show(state)
        case ["rotate"]:
            guard let archive = configuration.repeated["archive"]?.last else {
                throw UsageError("--archive is missing: a folder that does not exist yet, for the log that is closed")
            }
            try await LogRotation(
                state, origin: try configuration.required(.origin), archive: archive,
                witnesses: try WitnessSettings(configuration)
            ).run()
        default: throw UsageError("keys takes one of init, throwaway, rotate, show")
        }
    }

    static func make(_ state: StateFolder, origin: String) throws {
        _ = try checked(origin: origin)
        try File.makeFolder(state.path, mode: 0o700)
        try File.makeFolder(state.keys, mode: 0o700)
        for path in [state.ratchetKey, state.ledgerKey] where File.exists(path) {
            throw CheckFailed("\(path) exists already and is not replaced: what it sealed could never be opened again")
        }
        let key = try SigningKey.make(origin: origin, at: state.ledgerKey)
        try KeyRing.create(path: state.ratchetKey, nowMs: Clock.wallMs)
        let text = Array("\(key.verifierKey)\n".utf8)
        try File.replaceDurably(state.verifierKey, text.span, mode: 0o644)
        Terminal.out("made \(state.ratchetKey), \(state.ledgerKey) and \(state.verifierKey)")
        Terminal.out("Auditors need: \(key.verifierKey.description)")
        Terminal.out("Never back up \(state.keys): forgetting is destroying keys.")
    }

    /// A log's name: one that its entries can hold, and its key.
    static func checked(origin: String) throws -> EntryText {
        guard let text = EntryText(origin), VerifierKey(name: origin, publicKey: Array(repeating: 0, count: 32)) != nil else {
            throw UsageError(
                "--origin: \(SigningKey.Failure.badOrigin); at most \(EntryText.limit) visible ASCII characters, no quotes or backslashes"
            )
        }
        return text
    }

    /// Keys that protect nothing: anyone may make the same pushes at the simulator.
    static func makeThrowaway(_ state: StateFolder, origin: String) throws {
        if !File.exists(state.ratchetKey) { try make(state, origin: origin) }
        if !File.exists(state.apnsKey) {
            let key = try ES256.PrivateKey().pem()
            try File.replaceDurably(state.apnsKey, key.span, mode: 0o600)
        }
        if !File.exists(state.simulatorCertificate) || !File.exists(state.simulatorCA) {
            let made = try SelfSignedCertificate.make(names: ["localhost", "127.0.0.1", "::1"], days: 365)
            let (certificate, both) = (made.certificate, made.certificate + made.privateKey)
            try File.replaceDurably(state.simulatorCertificate, both.span, mode: 0o600)
            try File.replaceDurably(state.simulatorCA, certificate.span, mode: 0o644)
        }
        Terminal.out("Throw-away keys in \(state.keys): for development and tests only.")
    }

    private static func show(_ state: StateFolder) throws {
        let ring = try KeyRing.load(path: state.ratchetKey)
        let key = try SigningKey.load(state.ledgerKey)
        Terminal.out("ratchet: generation \(ring.currentGeneration), step \(ring.steps), no key before epoch \(ring.baseEpoch)")
        Terminal.out("ledger:  \(key.verifierKey.description)")
        if File.exists(state.nextLedgerKey) {
            Terminal.out("a change to another log is not finished: run the same `mayfly keys rotate` again")
        }
    }
}
