import Courier
import EventLoop
import Policy
import Sealing
import Storage
import Synchronization
import Testing

@testable import Broker

/// A simulated broker with a monitor, and what Apple gets of it.
struct MonitorStage: AudienceStage {
    static let kind = "monitor"
    let simulated: SimulatedBroker
    let record: SightingRecord

    init(_ simulated: SimulatedBroker, _ record: SightingRecord) {
        self.simulated = simulated
        self.record = record
    }

    static let printer = Array("p1s_01".utf8)
    /// Of this run.
    var monitor: Monitor {
        get async throws { try #require(await simulated.run?.monitor) }
    }

    /// What Apple got, once all has left that may.
    func pushes() async -> [Sighting] {
        await advance(1_000)
        return record.all
    }

    // MARK: Calls

    @discardableResult
    func register(_ byte: UInt8, of principal: Principal = alice, at printer: [UInt8]? = printer) async throws -> Registered {
        try await monitor.register(principal, token: token(byte), printer: printer, environment: nil, topic: nil)
    }

    func set(
        _ device: Registered, of principal: Principal = alice, adding: DevicePreferences = [], removing: DevicePreferences = []
    ) async throws -> Bool {
        try await monitor.set(principal, device: device.id, adding: adding, removing: removing)
    }

    @discardableResult
    func take(
        _ event: PrinterEvent, of printer: [UInt8] = printer, eventID: String? = nil, from caller: Principal = backEnd
    ) async throws -> (news: PrinterNews?, receipt: EventReceipt) {
        try await monitor.take(event, of: printer, eventID: eventID.map { Array($0.utf8) }, from: caller)
    }

    /// A print begins, or goes on after a pause.
    @discardableResult
    func run(_ old: PrinterStatus = .idle, of printer: [UInt8] = printer) async throws -> PrinterNews? {
        try await take(.status(from: old, to: .running), of: printer).news
    }

    /// The milestone that is told of so many percent.
    func milestone(_ percent: Int, of printer: [UInt8] = printer) async throws -> Int? {
        guard case .milestone(let reached)? = try await take(.progress(percent), of: printer).news else { return nil }
        return reached
    }
}
