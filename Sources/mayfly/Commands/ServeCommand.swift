import EventLoop
import Linux

/// `mayfly serve`: runs the broker.
enum ServeCommand {
    static let keys: [Key] =
        [
            .state, .ratchetKey, .wrappingKey, .listen, .operatorListen, .allowCleartext, .tlsCertificate, .tlsKey, .tlsClientCA,
            .trustedProxies, .backEnds, .backEndCreations, .corsOrigins,
            .origin, .node, .resolution, .policy, .witnessPolicy, .witnessFailure, .ledgerMirror, .notBefore,
        ] + JWTSettings.keys + [.webhookSecrets] + APNsSettings.keys

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help(
                    "usage: mayfly serve [FLAGS]\nEach flag can also be set in the environment, under the name in brackets.", keys
                ))
        }
        let configuration = try Configuration(words, keys: keys)
        guard configuration.operands.isEmpty else { throw UsageError("serve accepts flags only") }
        let service = try await Service.start(try ServiceSettings(configuration))
        let signals = ServiceSignals(loop: service.loop)
        try await signals.onHangUp { await service.reload() }
        Terminal.log("ready: apps at \(service.address), operator at \(service.operatorAddress)")
        await signals.waitForStop()
        Terminal.log("stopping: answering open requests for ten seconds at most. Signal again to stop at once")
        await service.stop()
        Terminal.log("stopped")
    }
}

/// Waits for signals. They are blocked before the first thread starts (`Mayfly.main`).
actor ServiceSignals: LoopActor {
    nonisolated let loop: EventLoop
    private var stop: CheckedContinuation<Void, Never>?

    init(loop: EventLoop) { self.loop = loop }

    /// Calls the action at each SIGHUP.
    func onHangUp(_ action: @escaping @Sendable () async -> Void) throws(Errno) {
        try loop.onSignal(.hangup) { Task { await action() } }
    }

    /// Returns at SIGTERM or SIGINT. The second one ends the process at once.
    func waitForStop() async {
        await withCheckedContinuation { continuation in
            stop = continuation
            for signal in [Signal.terminate, .interrupt] {
                try? loop.onSignal(signal) { self.assumeIsolated { $0.stopRequested() } }
            }
        }
    }

    private func stopRequested() {
        guard let stop else {
            Terminal.log("stopped at once after a second signal")
            ProcessControl.exit(1)
        }
        self.stop = nil
        stop.resume()
    }
}
