import API
import Broker
import Courier
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Shares
import Storage
import Vocabulary
import WebPush

/// The checks of `mayfly check`, in the order of a start. Where a start checks the same, both call the same function.
struct StartChecks {
    private let configuration: Configuration
    private let state: StateFolder
    private let isOffline: Bool

    /// - Parameter isOffline: asks no other machine.
    init(_ configuration: Configuration, isOffline: Bool) throws {
        self.configuration = configuration
        state = try configuration.state
        self.isOffline = isOffline
    }

    func run(_ report: inout CheckReport) async {
        await report.check("logging") { try ServiceLog.check(configuration) }
        var expiries = Certificates.expiries(state.database)
        await settings(&report, &expiries)
        let rules = await report.examine("policies") {
            let rules = try PolicySettings(configuration)
            return (rules, rules.policies.all.map(\.name).joined(separator: ", "))
        }
        await report.check("users") {
            try await JWTSettings(configuration)?.check(isOffline: isOffline) ?? "none: only rooms are served"
        }
        await report.check("webhooks") {
            let count = try WebhookSettings(configuration)?.secrets.count
            return count.map { "\($0) secret\($0 == 1 ? "" : "s")" } ?? "none: calls are not served"
        }
        await report.check("state") { try stateFolder() }
        // A missing folder is one fault. It would show in each of these.
        if state.isFolder {
            await report.check("disk") { try SystemChecks.disk(state) }
            await keysAndStore(&report, rules)
        }
        await report.check("memory") { try SystemChecks.memory(webPush: configuration[.vapidKey] != nil) }
        for (name, check) in SystemChecks.all { await report.check(name, check) }
        await report.check("web push") { try await webPush() }
        await report.check("apns") { try await apns(rules?.policies, &expiries) }
        await report.check("certificates") { try Certificates.check(expiries) }
    }

    private func settings(_ report: inout CheckReport, _ expiries: inout [Expiry]) async {
        let listeners = await report.examine("listeners") {
            let listeners = try ListenerSettings(configuration)
            expiries += Certificates.expiries(try listeners.certificate?.load())
            _ = try ServiceSettings.node(configuration)
            _ = try ServiceSettings.corsOrigins(configuration)
            let tls = listeners.certificate == nil ? "cleartext" : "TLS"
            // The socket unit is not visible here, and its address replaces the default.
            let otherwise = configuration[.listen] == nil ? " or where systemd listens" : ""
            return (
                listeners, "apps at \(listeners.listen.shown)\(otherwise) (\(tls)), operator at \(listeners.operatorListen.shown)"
            )
        }
        if state.database.isServer { await report.check("nodes") { try nodes(&expiries) } }
        await report.check("proxies") {
            if let listeners { try proxies(listeners) }
            _ = try ServiceSettings.backEnds(configuration)
            _ = try configuration.number(.backEndCreations)
            return configuration[.trustedProxies] == nil ? "none, since apps connect by TLS" : "named by --trusted-proxies"
        }
    }

    private func nodes(_ expiries: inout [Expiry]) throws -> String {
        guard let nodes = try NodeSettings(configuration) else {
            return "no other can join, since \(Setting.nodeListen.named) is not set"
        }
        expiries += Certificates.expiries(nodes)
        return "they get keys and log at \(nodes.listen.shown)"
    }

    private func proxies(_ listeners: ListenerSettings) throws {
        _ = try ServiceSettings.proxies(configuration, configuration[.listen] == nil ? nil : listeners.listen)
        guard listeners.certificate == nil else { return }
        if !listeners.listen.isLoopback {
            Terminal.log(
                .warning,
                "cleartext is allowed on \(listeners.listen.shown), beyond loopback. Let nobody but the proxy reach that address, or set \(Setting.tlsCertificate.named)"
            )
        }
        if case .unix = listeners.listen { return }
        if configuration[.trustedProxies] == nil {
            Terminal.log(
                .warning,
                "cleartext is served, but no proxy is trusted, so all callers behind one count as one address. Name the proxy in \(Setting.trustedProxies.named)"
            )
        }
    }

    private func stateFolder() throws -> String {
        try state.checkUsable()
        try state.checkMoved()
        if case .file(let path) = state.database, let status = try File.status(path), let why = status.exposure {
            let remedy = status.isOwn ? "Set its mode to 0600" : "Run this as that user, or chown it"
            Terminal.log(.warning, "\(state.shownDatabase) \(why). \(remedy)")
        }
        let exposures = try state.exposures()
        for exposure in exposures where !exposure.isBad { Terminal.log(.warning, exposure.text) }
        let bad = exposures.filter(\.isBad).map(\.text)
        guard bad.isEmpty else { throw CheckFailed(bad.joined(separator: ". ")) }
        return "\(state.shown) is this user's alone"
    }

    /// Keys, database and log prove each other. A running broker changes them in this order: log head, folder, key file, its record.
    private func keysAndStore(_ report: inout CheckReport, _ rules: PolicySettings?) async {
        let found = (await report.examine("database") { try database(rules?.policies.ledger) }).flatMap(\.self)
        let keys =
            (await report.examine("keys") { () throws -> (KeyRing?, String) in
                try ServiceSettings.checkKeys(state)
                if let rotation = found?.rotation { throw rotation.unfinished(state) }
                let wrapping = try WrappingKeySource(configuration)
                if let found, found.otherNodes == 0, state.database.isServer, wrapping == nil {
                    Terminal.log(.warning, LoneKeys.warning)
                }
                if state.database.isServer, !File.exists(state.ratchetKey) {
                    return (nil as KeyRing?, "in the nodes' memory only")
                }
                let keys = try state.loadKeys(
                    try wrapping?.get(),
                    longestLifeSeconds: rules.map { UInt64($0.policies.longestLifeSeconds) } ?? KeyRing.largestLifeSeconds)
                try found?.recorded.check(keys)
                return (
                    keys as KeyRing?, "\(state.shown(state.ratchetKey)): generation \(keys.currentGeneration), step \(keys.steps)"
                )
            }).flatMap(\.self)
        if let keys {
            await report.check("clock") { SystemChecks.clock(max(keys.earliestNowMs, found?.recorded.highestMs ?? 0)) }
        }
        let witnesses = await report.examine("witnesses") {
            let witnesses = try WitnessSettings(configuration)
            return (witnesses, witnesses.map { "\($0.policy.witnesses.count) in \($0.file)" } ?? "none")
        }
        var key: VerifierKey?
        // The check of keys reports a missing one.
        if File.exists(state.ledgerKey) {
            key = await report.examine("log key") {
                let key = try OpenState.ledgerKey(state, origin: configuration[.origin], witnesses ?? nil).verifierKey
                return (key, key.name)
            }
        }
        let copies = await report.examine("copies") {
            let copies = try KeptCheckpointSettings(configuration)
            return (copies, copies.isEmpty ? "none to compare the log with" : "named by settings")
        }
        if let key, let copies, found != nil { await report.check("log") { try await log(key, copies) } }
    }

    /// What the checks of keys need from the database.
    private struct StoreFindings {
        let recorded: RecordedTimes
        let rotation: RotationMark?
        /// How many other nodes serve.
        let otherNodes: Int

        /// - Parameter own: this node's name.
        init(_ snapshot: StoreSnapshot, own: String) throws {
            recorded = try RecordedTimes(snapshot)
            rotation = try RotationMark.read(try snapshot.mark(RotationMark.name))
            otherNodes = try snapshot.recentNodes(besides: own).count
            try snapshot.checkClock()
        }
    }

    private var nodeName: String { configuration.value(.node) }

    private func database(_ timing: LedgerTiming?) throws -> (value: StoreFindings?, text: String) {
        try state.checkDatabaseFolder()
        guard try state.database.exists() else { return (nil, "none yet: the first start makes it") }
        return try CommandFailed.naming(state.shownDatabase) {
            let snapshot = try StoreSnapshot(state.database)
            if let timing { try snapshot.check(timing) }
            let findings = try StoreFindings(snapshot, own: nodeName)
            return (findings, "\(state.shownDatabase) can be read, and has this version's tables")
        }
    }

    private func log(_ key: VerifierKey, _ copies: KeptCheckpointSettings) async throws -> String {
        let inspected: (Sequencer.Inspection, compared: Int)?
        do {
            inspected = try await inspect(key, copies)
        } catch Sequencer.Failure.gap {
            guard try !StoreSnapshot(state.database).recentNodes(besides: nodeName).isEmpty else { throw Sequencer.Failure.gap }
            return "its folder lacks entries that another node has; the next start copies them"
        }
        guard let (found, compared) = inspected else { return "none yet: the first start begins it" }
        let waits = found.lacking == 0 ? "" : "; the next start publishes the last \(found.lacking)"
        let continued = compared == 0 ? "" : "; it continues \(compared == 1 ? "its copy" : "its \(compared) copies")"
        return "\(found.head.size) entries, signed by this key, and the folder is this database's\(waits)\(continued)"
    }

    /// Compares the log with its database and with its copies. A running broker may publish in between, so a contradiction must last.
    private func inspect(
        _ key: VerifierKey, _ copies: KeptCheckpointSettings
    ) async throws -> (Sequencer.Inspection, compared: Int)? {
        var tries = 0
        while true {
            do {
                guard let found = try Sequencer.inspect(StoreSnapshot(state.database), LedgerFolder(state.ledger), key: key)
                else { return nil }
                return (found, try await compare(found, copies, key))
            } catch  where error is LedgerFolder.Failure || error is KeptCheckpoint.Failure {
                tries += 1
                guard tries < 3 else { throw error }
                try await Task.sleep(for: .milliseconds(300))
            }
        }
    }

    /// Returns how many copies the log continues. One that can't be read is a warning: a broker serves meanwhile, and signs nothing.
    private func compare(_ found: Sequencer.Inspection, _ copies: KeptCheckpointSettings, _ key: VerifierKey) async throws -> Int
    {
        let loop = try EventLoop(name: "check")
        try loop.start()
        defer { loop.stop() }
        var compared = 0
        for copy in try copies.checkpoints(on: loop) where !isOffline || !copy.isRemote {
            do {
                try await copy.check(found, of: key)
                compared += 1
            } catch let failure as KeptCheckpoint.Failure where !failure.isFinal {
                Terminal.log(.warning, "\(failure)")
            }
        }
        return compared
    }

    private func apns(_ policies: Policies?, _ expiries: inout [Expiry]) async throws -> String {
        let settings = try APNsSettings(configuration, mayLackCredentials: true)
        ProxySettings.warnOfVariables(configuration)
        expiries += Certificates.expiries(settings)
        guard !settings.apps.isEmpty else { return "" }
        let trial = try TrialPush(settings, state)
        if let policies { try ServiceSettings.checkTemplates(policies, trial.accounts) }
        let apps = settings.probes.map { "\(Self.shown($0.topic)) (\($0.environment))" }.joined(separator: ", ")
        if isOffline { return "\(apps): the credentials are well-formed. Apple was not asked" }
        for (probe, outcome, cause) in try await trial.answers() {
            let verdict = TrialPush.verdict(outcome)
            guard verdict != .accepted, case .failed(_, let reason, _) = outcome else { continue }
            let what = verdict == .refused ? "does not accept" : "did not judge"
            let text =
                "APNs (\(probe.environment)) \(what) \(Self.shown(probe.topic)): \(reason.rawValue)\(cause.map { " (\($0))" } ?? ""). "
                + Self.sentence(trial.remedy(reason))
            guard !probe.isRequired else { throw CheckFailed(text) }
            Terminal.log(.warning, text)
        }
        let who = settings.endpoint.map { "\($0.authorityWithPort) (--apns-endpoint, not Apple)" } ?? "Apple"
        return "\(apps): \(who) accepts key or certificate, and topic\(settings.proxy == nil ? "" : ", through the proxy")"
    }

    private func webPush() async throws -> String {
        let settings = try WebPushSettings(configuration)
        let store = try state.database.exists() ? StoreSnapshot(state.database) : nil
        let inForce = try store.flatMap { try WebPushSettings.inForce(settings, $0) }
        WebPushSettings.warn(settings, inForce, try store.map { try AddressSize.recorded(in: $0) } ?? .apnsOnly)
        guard let settings else { return "none: browsers get no push" }
        let keys = settings.service.keys.count == 1 ? "one key" : "two keys, while it is rotated"
        return "\(keys), for \(settings.service.origin). Try a subscription with `mayfly push check`"
    }

    private static func sentence(_ text: String) -> String { text.prefix(1).uppercased() + text.dropFirst() }

    /// A single word could be a secret in place of a bundle id.
    private static func shown(_ topic: String) -> String { topic.contains(".") ? topic : "<\(topic.utf8.count) bytes>" }
}
