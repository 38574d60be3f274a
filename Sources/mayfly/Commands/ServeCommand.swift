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
