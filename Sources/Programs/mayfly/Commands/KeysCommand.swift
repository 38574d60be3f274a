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
    private static let keys: [Setting] = [
        .state, .database, .ratchetKey, .wrappingKey, .origin, .witnessPolicy, .witnessFailure, .ledgerMirror, .notBefore,
    ]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Subcommand.help(words, "keys", subcommands)) }
        let configuration = try Configuration(words, keys: keys, options: ["archive"])
        let state = try configuration.state
        let wrapping = try WrappingKeySource(configuration)
        switch configuration.operands {
        case ["init"]: try make(state, origin: try configuration.required(.origin), wrapping: wrapping)
        case ["throwaway"]:
            try makeThrowaway(state, origin: configuration[.origin] ?? "mayfly.localhost/audit", wrapping: wrapping)
        case ["renew"]: try await renew(state, wrapping: wrapping)
        case ["show"]: try show(state, wrapping: wrapping)
        case ["rotate"]:
            guard let archive = try configuration.option("archive") else {
                throw UsageError("--archive is missing: a new folder for the closed log")
            }
            try await LogRotation(
                state, origin: try configuration.required(.origin), archive: archive,
                witnesses: try WitnessSettings(configuration), kept: try KeptCheckpointSettings(configuration), wrapping: wrapping
            ).run()
        default:
            let hint = Spelling.hint(configuration.operands.first ?? "", subcommands.map(\.name))
            throw UsageError("unknown keys command. Use init, throwaway, renew, rotate or show\(hint)")
        }
    }

    private static func make(_ state: StateFolder, origin: String, wrapping: WrappingKeySource?) throws {
        _ = try checked(origin: origin)
        for path in [state.ratchetKey, state.ledgerKey] where File.exists(path) {
            throw CheckFailed(
                "\(state.shown(path)) exists and is not replaced, since its tokens could never be opened again")
        }
        let wrapping = try wrapping?.get()
        try checkRatchetFolder(state)
        do {
            try File.makeFolder(state.path, mode: 0o700)
        } catch {
            throw CommandFailed(
                "the state folder \(state.shown) can't be made: \(error.reason). Make it as root for the broker's user: `install -d -m 700 -o USER -g USER \(state.shown)`"
            )
        }
        try File.makeFolder(state.keys, mode: 0o700)
        let key = try SigningKey.make(origin: origin, at: state.ledgerKey)
        // With a server and no wrapping key, the first start makes keys in memory.
        let hasFile = !state.database.isServer || wrapping != nil
        do {
            if hasFile { try KeyRing.create(path: state.ratchetKey, wrapping: wrapping, nowMs: Clock.wallMs) }
        } catch {
            // Otherwise this key would make the next try fail.
            try? File.removeAndErase(state.ledgerKey)
            throw error
        }
        try key.verifierKey.write(to: state.verifierKey)
        Terminal.out(
            "made \(hasFile ? state.shown(state.ratchetKey) + ", " : "")\(state.shown(state.ledgerKey)) and \(state.shown(state.verifierKey))"
        )
        Terminal.out("Auditors need: \(key.verifierKey.description)")
        Terminal.out("Never back up \(state.shown(state.keys)): tokens are forgotten by destroying keys.")
        if !hasFile { Terminal.out("The nodes make the other keys in memory. \(LoneKeys.meaning).") }
    }

    /// - Throws: `UsageError` if the text can't be a log's origin.
    static func checked(origin: String) throws -> EntryText {
        if let text = EntryText(origin), isHostAndPath(origin) { return text }
        let parts = origin.split(separator: "://", maxSplits: 1, omittingEmptySubsequences: false)
        // People paste the log's URL, with a scheme and a final slash.
        let meant = (parts.last ?? "").split(separator: "/").joined(separator: "/")
        let remedy = EntryText(meant) != nil && isHostAndPath(meant) ? "Write \(meant)" : ""
        if parts.count == 2 {
            throw UsageError(
                "\(Setting.origin.named) begins with a scheme. \(remedy.isEmpty ? "Write host and path alone" : remedy)")
        }
        throw UsageError(
            "\(Setting.origin.named): \(SigningKey.Failure.badOrigin); at most \(EntryText.limit) visible ASCII characters, "
                + "no quotes, backslashes or slashes at the ends\(remedy.isEmpty ? "" : ". " + remedy)")
    }

    /// Whether a text is HOST, HOST:PORT, or one of them with a path.
    private static func isHostAndPath(_ text: String) -> Bool {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        let host = parts[0].split(separator: ":", omittingEmptySubsequences: false)
        let isName = host[0].utf8.allSatisfy {
            (0x30...0x39).contains($0) || (0x61...0x7a).contains($0 | 0x20) || $0 == 0x2d || $0 == 0x2e
        }
        guard !parts.contains(""), !host[0].isEmpty, isName, host.count == 1 || host.count == 2 && UInt16(host[1]) != nil else {
            return false
        }
        return !text.utf8.contains(where: "?#@".utf8.contains)
            && VerifierKey(name: text, publicKey: Array(repeating: 0, count: 32)) != nil
    }

    /// Requires the folder of `--ratchet-key` to exist. If it is missing, a file system may not be mounted, and keys would go to disk.
    private static func checkRatchetFolder(_ state: StateFolder) throws {
        let folder = File.folder(of: state.ratchetKey)
        guard state.hasRatchetKeyElsewhere, try File.status(folder)?.kind != .folder else { return }
        throw CommandFailed("the folder \(ShownPath(folder)) of --ratchet-key is missing. Mount or make it first")
    }

    /// Replaces a lost key file. The loss is recorded in the store first, because a broker may start as soon as the new file exists.
    private static func renew(_ state: StateFolder, wrapping: WrappingKeySource?) async throws {
        guard !state.database.isServer else {
            throw UsageError(
                "keys renew is for SQLite. With PostgreSQL the first node that starts makes new keys when no node has them any more"
            )
        }
        guard File.exists(state.ledgerKey) else {
            throw CommandFailed(
                "\(state.shown(state.ledgerKey)) is missing too: make the keys of an empty state folder with `mayfly keys init`"
            )
        }
        let lock = try state.lock()
        defer { extendLifetime(lock) }
        try RotationMark.refuse(state)
        guard !File.exists(state.ratchetKey) else {
            return Terminal.out("\(state.shown(state.ratchetKey)) exists: nothing was done")
        }
        let wrapping = try wrapping?.get()
        var born = Clock.wallMs
        try checkRatchetFolder(state)
        if try state.database.exists() {
            let store = try state.database.open(resolution: 1, timing: nil, now: { Clock.wallMs })
            do {
                try await RotationMark.refuse(state, store)
                born = try await KeyKeeper.recordLoss(store, nowMs: born)
            } catch {
                await store.shutDown()
                throw error
            }
            await store.shutDown()
        }
        try KeyRing.create(path: state.ratchetKey, wrapping: wrapping, nowMs: born)
        Terminal.out(
            "made \(state.shown(state.ratchetKey)). The next start forgets everything that was sealed under the lost one.")
    }

    /// Makes keys for development: for pushes to the simulator, and for made-up users.
    static func makeThrowaway(_ state: StateFolder, origin: String, wrapping: WrappingKeySource?) throws {
        // With a server, the keys may be in memory only.
        if !File.exists(state.database.isServer ? state.ledgerKey : state.ratchetKey) {
            try make(state, origin: origin, wrapping: wrapping)
        }
        for path in [state.apnsKey, state.vapidKey] where !File.exists(path) {
            let key = try ES256.PrivateKey().pem()
            try File.replaceDurably(path, key.span, mode: 0o600)
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
        let ring = try state.loadKeys(wrapping)
        let key = try SigningKey.load(state.ledgerKey)
        Terminal.out("ratchet: generation \(ring.currentGeneration), step \(ring.steps), no key before epoch \(ring.baseEpoch)")
        if let wrapping { Terminal.out("         wrapped under the key \(Hex.encode(wrapping.id.span))") }
        Terminal.out("ledger:  \(key.verifierKey.description)")
        if File.exists(state.nextLedgerKey) {
            Terminal.out("a rotation is not finished: run the same `mayfly keys rotate` again")
        }
    }

    private static let fileKeys: [Setting] = [.state, .database, .ratchetKey, .wrappingKey]

    private static let subcommands = [
        Subcommand(
            "init", ["[FLAGS]"], "make keys/ratchet.key, keys/ledger.key and ledger.vkey; replaces nothing",
            keys: fileKeys + [.origin]),
        Subcommand(
            "throwaway", ["[FLAGS]"],
            "like init, and also make keys for APNs and Web Push, a certificate for the simulator and secrets for JWTs and webhooks; for development only",
            keys: fileKeys + [.origin]),
        Subcommand(
            "renew", ["[FLAGS]"],
            """
            make another ratchet key if only that file is lost, e.g. one in memory after a restart of the machine. The
            next start forgets all rooms, tokens and pushes. Does nothing if the file exists
            """, keys: fileKeys),
        Subcommand(
            "rotate", ["--origin NEW --archive DIR [--state DIR] [--witness-policy FILE]"],
            """
            close the log, move it to DIR (which must not exist, or be empty) with its ledger.vkey, destroy its private key, and
            begin another log under NEW with another key. Stop the broker first. After a crash run it again.
            Witnesses cosign the last checkpoint as with `serve`. As with `serve`, the log must continue the
            copy of --ledger-mirror and the checkpoint of --not-before
            """, keys: keys),
        Subcommand("show", ["[FLAGS]"], "show ids and steps of the keys, nothing secret", keys: fileKeys),
    ]
}

extension VerifierKey {
    func write(to path: String) throws {
        let text = Array("\(self)\n".utf8)
        try File.replaceDurably(path, text.span, mode: 0o644)
    }
}
