import Broker
import Courier
import EventLoop
import Policy
import Sealing
import Storage
import Synchronization
import Testing

/// A simulated broker for calls, and what Apple gets of it.
struct CallsStage: AudienceStage {
    static let kind = "calls"
    let simulated: SimulatedBroker
    let record: SightingRecord

    init(_ simulated: SimulatedBroker, _ record: SightingRecord) {
        self.simulated = simulated
        self.record = record
    }

    /// Of this run.
    var calls: Calls {
        get async throws { try #require(await simulated.run?.calls) }
    }

    /// What Apple got, once all has left that may.
    func pushes(to token: UInt8? = nil) async -> [Sighting] {
        await simulated.advance(1_000)
        return record.all.filter { token == nil || $0.token == token }
    }

    // MARK: Calls

    @discardableResult
    func register(_ byte: UInt8, of user: Principal = bob, by caller: Principal? = nil) async throws -> Registered {
        try await calls.register(caller ?? user, user: user.user, token: token(byte), environment: nil, topic: nil)
    }

    func delete(_ byte: UInt8? = nil, of user: Principal = bob, by caller: Principal? = nil) async throws -> Int {
        try await calls.delete(caller ?? user, user: user.user, token: byte.map { try token($0) })
    }

    @discardableResult
    func ring(
        _ session: String = "session", to receiver: Principal = bob, from caller: Principal = alice,
        media: CallInvitation.Media = .video
    ) async throws -> CallReceipt {
        try await calls.ring(
            CallInvitation(session: Array(session.utf8), caller: caller.user, receiver: receiver.user, media: media))
    }
}
