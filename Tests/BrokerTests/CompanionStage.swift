import Broker
import Courier
import EventLoop
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import Testing
import Vocabulary

/// A simulated broker with a companion: what Apple gets of it, and what its sockets are told, each with its time.
struct CompanionStage: AudienceStage {
    private final class Sockets: CompanionSockets {
        private let messages = Mutex<[(to: [UInt8], CompanionMessage)]>([])

        func tell(user: [UInt8], _ message: CompanionMessage) async { tell(user, message) }
        func tell(backEnd: [UInt8], _ message: CompanionMessage) async { tell(backEnd, message) }
        private func tell(_ name: [UInt8], _ message: CompanionMessage) { messages.withLock { $0.append((name, message)) } }

        func messages(to name: [UInt8]) -> [CompanionMessage] {
            messages.withLock { $0.compactMap { $0.to == name ? $0.1 : nil } }
        }
    }

    static let kind = "companion"
    let simulated: SimulatedBroker
    let record: SightingRecord
    private let sockets = Sockets()

    init(_ simulated: SimulatedBroker, _ record: SightingRecord) {
        self.simulated = simulated
        self.record = record
    }

    static let session = Array("session".utf8)

    func start() async throws {
        try await simulated.start()
        try await companion.setEdge(sockets)
    }

    /// Of this run.
    var companion: Companion {
        get async throws { try #require(await simulated.run?.companion) }
    }

    // MARK: What came of it

    var sightings: [Sighting] { record.all }
    /// Pushes to the token that begins with this byte.
    func pushes(to token: UInt8) -> [Sighting] { record.all.filter { $0.token == token } }
    func told(_ principal: Principal) -> [CompanionMessage] { sockets.messages(to: principal.user) }

    /// How approvals ended.
    func ends(_ principal: Principal) -> [CompanionMessage] {
        told(principal).filter { message in
            switch message {
            case .approvalResponse, .approvalTimeout: true
            default: false
            }
        }
    }

    // MARK: Calls

    @discardableResult
    func register(_ byte: UInt8, of principal: Principal = alice) async throws -> Registered {
        try await companion.registerDevice(principal, token: token(byte), environment: nil, topic: nil)
    }

    @discardableResult
    func start(
        _ byte: UInt8, of principal: Principal = alice, activity: String = "activity", session: [UInt8] = session,
        previous: UInt8? = nil
    ) async throws -> Registered {
        try await companion.registerActivity(
            principal, token: token(byte), activity: Array(activity.utf8), session: session,
            previous: previous.map { try token($0) }, environment: nil, topic: nil)
    }

    @discardableResult
    func take(
        _ event: CompanionEvent, of principal: Principal = alice, session: [UInt8] = session, eventID: String? = nil,
        ownID: String? = nil, from caller: Principal = backEnd
    ) async throws -> EventReceipt {
        try await companion.take(
            event, of: principal.user, session: session, eventID: eventID.map { Array($0.utf8) },
            ownID: ownID.map { Array($0.utf8) }, from: caller)
    }

    /// Asks for an approval.
    func ask(of principal: Principal = alice) async throws -> (request: RequestID, due: UInt64) {
        let receipt = try await take(.approvalRequest, of: principal)
        return (try #require(receipt.request), try #require(receipt.expires))
    }

    func respond(_ request: RequestID, _ principal: Principal = alice, approved: Bool = true, from byte: UInt8? = nil)
        async throws
        -> Bool
    {
        try await companion.respond(
            principal, request: RequestName(id: request), approved: approved, excluding: byte.map { try token($0) })
    }

    func state(_ request: RequestID, _ principal: Principal = backEnd) async throws -> Approval.State? {
        try await companion.approval(principal, request: RequestName(id: request))?.state
    }
}
