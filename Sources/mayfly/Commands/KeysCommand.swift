import Broker
import Ledger
import Linux
import Sealing
import Sodium
import Storage
import TLS
import Vocabulary

/// `mayfly keys init|throwaway|renew|rotate|show`.
enum KeysCommand {
    private static let keys: [Key] = [
        .state, .ratchetKey, .wrappingKey, .origin, .witnessPolicy, .witnessFailure, .ledgerMirror, .notBefore,
    ]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "keys", subcommands)) }
        let configuration = try Configuration(words, keys: keys, options: ["archive"])
        let state = configuration.state
        let wrapping = try WrappingKeySource(configuration)
        switch configuration.operands {
        case ["init"]: try make(state, origin: try configuration.required(.origin), wrapping: wrapping)
        case ["throwaway"]:
            try makeThrowaway(state, origin: configuration[.origin] ?? "mayfly.localhost/audit", wrapping: wrapping)
        case ["renew"]: try await renew(state, wrapping: wrapping)
        case ["show"]: try show(state, wrapping: wrapping)
        case ["rotate"]:
            guard let archive = configuration.option("archive") else {
                throw UsageError("--archive is missing: a folder that does not exist yet, for the log that is closed")
            }
            try await LogRotation(
                state, origin: try configuration.required(.origin), archive: archive,
                witnesses: try WitnessSettings(configuration), kept: try KeptCheckpointSettings(configuration), wrapping: wrapping
            ).run()
        default: throw UsageError("keys takes one of init, throwaway, renew, rotate, show")
        }
    }

    static func make(_ state: StateFolder, origin: String, wrapping: WrappingKeySource?) throws {
        _ = try checked(origin: origin)
        for path in [state.ratchetKey, state.ledgerKey] where File.exists(path) {
            throw CheckFailed(
                "\(state.shown(path)) exists already and is not replaced: what it sealed could never be opened again")
        }
        let wrapping = try wrapping?.get()
        try checkPlace(state)
        try File.makeFolder(state.path, mode: 0o700)
        try File.makeFolder(state.keys, mode: 0o700)
        let key = try SigningKey.make(origin: origin, at: state.ledgerKey)
        do {
            try KeyRing.create(path: state.ratchetKey, wrapping: wrapping, nowMs: Clock.wallMs)
        } catch {
            // One alone would be in the way of the next try.
            try? File.removeAndErase(state.ledgerKey)
            throw error
        }
        let text = Array("\(key.verifierKey)\n".utf8)
        try File.replaceDurably(state.verifierKey, text.span, mode: 0o644)
        Terminal.out(
            "made \(state.shown(state.ratchetKey)), \(state.shown(state.ledgerKey)) and \(state.shown(state.verifierKey))")
        Terminal.out("Auditors need: \(key.verifierKey.description)")
        Terminal.out("Never back up \(state.shown(state.keys)): forgetting is destroying keys.")
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

    /// A folder that is missing may be a file system that is not mounted: keys must not go to the disk below it.
    private static func checkPlace(_ state: StateFolder) throws {
        let folder = File.folder(of: state.ratchetKey)
        guard state.hasRatchetKeyElsewhere, try File.status(folder)?.kind != .folder else { return }
        throw CommandFailed("the folder \(ShownPath(folder)) of --ratchet-key is missing: mount or make it first")
    }

    /// Makes a key file in the place of one that is lost. That there is nothing left to open is told to the store first: once the new file is
    /// there, a broker may start.
    private static func renew(_ state: StateFolder, wrapping: WrappingKeySource?) async throws {
        guard File.exists(state.ledgerKey) else {
            throw CommandFailed(
                "\(state.shown(state.ledgerKey)) is missing, too: make the keys of an empty state folder with `mayfly keys init`"
            )
        }
        let lock = try state.lock()
        defer { extendLifetime(lock) }
        try RotationMark.refuse(state)
        guard !File.exists(state.ratchetKey) else {
            return Terminal.out("\(state.shown(state.ratchetKey)) is there: nothing was done")
        }
        let wrapping = try wrapping?.get()
        try checkPlace(state)
        if File.exists(state.database) {
            let store = try SQLiteStore(path: state.database, resolution: 1, timing: nil, now: { Clock.wallMs })
            do {
                try await RotationMark.refuse(state, store)
                try await KeyKeeper.noteLoss(store)
            } catch {
                await store.shutDown()
                throw error
            }
            await store.shutDown()
        }
        try KeyRing.create(path: state.ratchetKey, wrapping: wrapping, nowMs: Clock.wallMs)
        Terminal.out(
            "made \(state.shown(state.ratchetKey)). What was sealed under the one that is lost is forgotten by the next start.")
    }

    /// Keys that protect nothing: for pushes at the simulator, and for users that anyone may make up.
    static func makeThrowaway(_ state: StateFolder, origin: String, wrapping: WrappingKeySource?) throws {
        if !File.exists(state.ratchetKey) { try make(state, origin: origin, wrapping: wrapping) }
        if !File.exists(state.apnsKey) {
            let key = try ES256.PrivateKey().pem()
            try File.replaceDurably(state.apnsKey, key.span, mode: 0o600)
        }
        for path in [state.jwtSecret, state.webhookSecret] where !File.exists(path) {
            let secret = Array("\(Base64.url.encode(Sodium.randomBytes(32).span))\n".utf8)
            try File.replaceDurably(path, secret.span, mode: 0o600)
        }
        if !File.exists(state.simulatorCertificate) || !File.exists(state.simulatorCA) {
            let made = try SelfSignedCertificate.make(names: ["localhost", "127.0.0.1", "::1"], days: 365)
            let (certificate, both) = (made.certificate, made.certificate + made.privateKey)
            try File.replaceDurably(state.simulatorCertificate, both.span, mode: 0o600)
            try File.replaceDurably(state.simulatorCA, certificate.span, mode: 0o644)
        }
        Terminal.out("Throw-away keys in \(state.shown(state.keys)): for development and tests only.")
    }

    private static func show(_ state: StateFolder, wrapping: WrappingKeySource?) throws {
        let wrapping = try wrapping?.get()
        let ring: KeyRing
        do {
            ring = try KeyRing.load(path: state.ratchetKey, wrapping: wrapping)
        } catch { throw CommandFailed("\(state.shown(state.ratchetKey)): \(error)") }
        let key = try SigningKey.load(state.ledgerKey)
        Terminal.out("ratchet: generation \(ring.currentGeneration), step \(ring.steps), no key before epoch \(ring.baseEpoch)")
        if let wrapping { Terminal.out("         wrapped under the key \(Hex.encode(wrapping.id.span))") }
        Terminal.out("ledger:  \(key.verifierKey.description)")
        if File.exists(state.nextLedgerKey) {
            Terminal.out("a change to another log is not finished: run the same `mayfly keys rotate` again")
        }
    }

    private static let places: [Key] = [.state, .ratchetKey, .wrappingKey]

    private static let subcommands = [
        Subcommand(
            "init", ["[FLAGS]"], "make keys/ratchet.key, keys/ledger.key and ledger.vkey; never over anything",
            keys: places + [.origin]),
        Subcommand(
            "throwaway", ["[FLAGS]"],
            "what init makes, an APNs key and certificate for the simulator, and secrets for users' JWTs and for webhooks: for development only",
            keys: places + [.origin]),
        Subcommand(
            "renew", ["[FLAGS]"],
            """
            make another ratchet key where that file alone is lost, as one in memory is when the machine was restarted. The
            next start forgets all that was sealed: rooms, tokens, pushes. If the file is there, nothing
            """, keys: places),
        Subcommand(
            "rotate", ["--origin NEW --archive DIR [--state DIR] [--witness-policy FILE]"],
            """
            close the log, move it to DIR (which must not exist, or be empty) with its ledger.vkey, destroy its private key, and
            begin another log under NEW with another key. The broker must be stopped. After a crash run it again.
            The closed log's last checkpoint is cosigned as `serve` has it cosigned. As for `serve`, the log must continue the
            copy of --ledger-mirror and the checkpoint of --not-before
            """, keys: keys),
        Subcommand("show", ["[FLAGS]"], "what is there; nothing secret", keys: places),
    ]
}
