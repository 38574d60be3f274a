import EventLoop
import Linux

/// `mayfly serve`.
enum ServeCommand {
    static let keys: [Key] =
        [
            .state, .ratchetKey, .wrappingKey, .listen, .operatorListen, .allowCleartext, .tlsCertificate, .tlsKey, .tlsClientCA,
            .trustedProxies, .backEnds, .backEndCreations, .origin,
            .node, .resolution, .policy, .witnessPolicy, .witnessFailure, .ledgerMirror, .notBefore,
        ] + JWTSettings.keys + [.webhookSecrets] + APNsSettings.keys

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help(
                    "usage: mayfly serve [FLAGS]\nEach flag can also be set in the environment, under the name in brackets.", keys
                ))
        }
        let configuration = try Configuration(words, environment: Environment.all, keys: keys)
        guard configuration.operands.isEmpty else { throw UsageError("serve accepts flags only") }
        let settings = try ServiceSettings(configuration)
        let service = try await Service.start(settings)
        let (certificate, authenticator, webhooks) = (settings.certificate, settings.authenticator, settings.webhooks)
        try await HangUpSignal(loop: service.loop).listen {
            if certificate == nil, authenticator == nil, webhooks == nil, !service.hasAPNsCredentials {
                Terminal.log("SIGHUP: nothing to read again: no certificate, no key for JWTs or APNs, no webhook secret")
            }
            await service.renewAPNs()
            if let certificate { await service.renewCertificate(certificate) }
            if let authenticator { await service.renewKeys(authenticator) }
            if let webhooks { service.renewSecrets(webhooks) }
        }
        Terminal.log("ready: apps at \(service.address), operator at \(service.operatorAddress)")
        await StopSignal.wait(on: service.loop)
        Terminal.log("stopping: answering open requests for ten seconds at most. Signal again to stop at once")
        await service.stop()
        Terminal.log("stopped")
    }
}

/// SIGTERM or SIGINT: the first asks for an orderly end, the second ends at once.
enum StopSignal {
    static func wait(on loop: EventLoop) async {
        let waiter = SignalWaiter(loop: loop)
        await waiter.first()
    }
}

/// SIGHUP: what can be read again is read again.
private actor HangUpSignal: LoopActor {
    nonisolated let loop: EventLoop

    init(loop: EventLoop) { self.loop = loop }

    func listen(_ action: @escaping @Sendable () async -> Void) throws(Errno) {
        try loop.onSignal(.hangup) { Task { await action() } }
    }
}

private actor SignalWaiter: LoopActor {
    nonisolated let loop: EventLoop
    private var continuation: CheckedContinuation<Void, Never>?

    init(loop: EventLoop) { self.loop = loop }

    func first() async {
        await withCheckedContinuation { continuation in
            self.continuation = continuation
            for signal in [Signal.terminate, .interrupt] {
                try? loop.onSignal(signal) { self.assumeIsolated { $0.received() } }
            }
        }
    }

    private func received() {
        guard let continuation else {
            Terminal.log("stopped at once after a second signal")
            Terminal.exit(1)
        }
        self.continuation = nil
        continuation.resume()
    }
}
