import API
import Broker
import Courier
import EventLoop
import HTTPServer
import Ledger
import Linux
import Sealing
import Storage

/// A running broker: how it starts, and in which order it ends.
final class Service: Sendable {
    let settings: ServiceSettings
    let parts: ServiceParts
    let listeners: Listeners
    let address: SocketAddress
    let operatorAddress: SocketAddress
    private let tasks: [Task<Void, Never>]

    var loop: EventLoop { parts.broker.loop }

    // MARK: Start

    /// Starts everything; purges and ratchets what is late first, and listens last.
    /// - Throws: what stands in the way, for people; nothing is left running then.
    static func start(_ settings: ServiceSettings) async throws -> Service {
        try Arena.shared.prepare()
        let state = try await OpenState(settings)
        let parts: ServiceParts
        do {
            parts = try await ServiceParts(settings, state)
            try await parts.catchUp(settings)
        } catch {
            await state.store.shutDown()
            throw error
        }
        do {
            let listeners = try await Listeners(settings, parts)
            let addresses = try await listeners.start(settings, parts.broker)
            let service = Service(settings, parts, listeners, addresses)
            listeners.operatorHandler.setReady(true)
            return service
        } catch {
            await end(parts, [])
            throw error
        }
    }

    private init(
        _ settings: ServiceSettings, _ parts: ServiceParts, _ listeners: Listeners,
        _ addresses: (apps: SocketAddress, operator: SocketAddress)
    ) {
        self.settings = settings
        self.parts = parts
        self.listeners = listeners
        (address, operatorAddress) = addresses
        tasks = [
            Task { await parts.keeper.run() },
            Task { await parts.sequencer.run() },
            Task { await parts.sweeper.run() },
            Task { if let companion = parts.companion { await companion.audiences.run() } },
            Task {
                var watch = ShareWatch(parts.broker.shares, listeners.publicServer, parts.broker.metrics)
                await watch.run()
            },
        ]
    }

    // MARK: Stop

    /// Ends in order: no new requests, answers to old ones, pushes under way, the last ledger entries, the files.
    func stop() async {
        listeners.operatorHandler.setReady(false)
        await listeners.publicServer.drain(deadlineMs: 10_000)
        await parts.broker.outbox.drain(deadlineMs: 3_000)
        await Self.end(parts, tasks)
        await listeners.operatorServer.drain(deadlineMs: 1_000)
        for loop in parts.loops { loop.stop() }
    }

    private static func end(_ parts: ServiceParts, _ tasks: [Task<Void, Never>]) async {
        await parts.courier.stop(withinMs: 1_000)
        for task in tasks { task.cancel() }
        await parts.sweeper.stop()
        await parts.companion?.audiences.stop()
        for task in tasks { await task.value }
        let store = parts.state.store
        do {
            // Twice, since entries without a ref come first in their window, and this one is the last word.
            try await parts.sequencer.flush()
            try await store.record([.brokerStopped(node: parts.state.node)])
            try await parts.sequencer.flush()
        } catch {
            Terminal.log("ledger: the last entries wait in the database for the next start (\(error))")
        }
        await store.shutDown()
    }
}
