import Courier
import Linux
import Sealing
import Shares
import Storage
import Testing
import Vocabulary

@testable import Broker
@testable import Policy

/// Charges of callers, and their refunds.
@Suite struct RequestChargesTests {
    private static let other = SocketAddress.v4(0xc633_6402, port: 9)

    private func charged<Value>(
        isolation: isolated (any Actor)? = #isolation, _ fixture: BrokerFixture, _ address: SocketAddress = BrokerFixture.here,
        _ call: (RequestCharges) async throws -> Value
    ) async throws -> Value {
        let charges = try RequestCharges(fixture.broker.shares, Owners(fixture.broker.shares.network(address)))
        defer { charges.end() }
        return try await call(charges)
    }

    /// The length of the write-ahead log, which grows with every write.
    private func written(_ fixture: BrokerFixture) throws -> Int {
        try File.status(fixture.folder + "/mayfly.sqlite-wal")?.size ?? 0
    }

    // Promise: repeat-writes-nothing
    @Test func theSameTokenAgainWritesNothing() async throws {
        let fixture = try await BrokerFixture()
        let (token, other) = (try fixture.token(1), try fixture.token(2))
        let room = try await fixture.create(token: token)
        let caller = fixture.caller(room.room, "creator", room.member)
        // The first call records the use of the member secret.
        _ = try await fixture.broker.rooms.replaceToken(caller, with: .test(token))
        let before = try written(fixture)
        for _ in 0..<50 {
            let again = try await fixture.broker.rooms.replaceToken(caller, with: .test(token))
            #expect(again.ref == room.ref && again.expires == room.expires)
        }
        #expect(try written(fixture) == before)
        let sandbox = try await fixture.broker.rooms.replaceToken(caller, with: .test(token, .sandbox))
        #expect(sandbox.ref != room.ref, "the same token of another environment is another")
        let replaced = try await fixture.broker.rooms.replaceToken(caller, with: .test(other, .sandbox))
        #expect(replaced.ref != sandbox.ref)
        let after = try written(fixture)
        #expect(after > before)
        // A second withdrawal changes nothing.
        #expect(try await fixture.broker.rooms.withdrawToken(caller) == 1)
        let withdrawn = try written(fixture)
        #expect(withdrawn > after)
        #expect(try await fixture.broker.rooms.withdrawToken(caller) == 0)
        #expect(try written(fixture) == withdrawn)
        try await fixture.end()
    }

    @Test func theSameTokenAtOnceIsSealedOnce() async throws {
        let fixture = try await BrokerFixture()
        let room = try await fixture.create(token: try fixture.token(1))
        let caller = fixture.caller(room.room, "creator", room.member)
        let (rooms, token) = (fixture.broker.rooms, try fixture.token(2))
        let refs = try await withThrowingTaskGroup { group in
            for _ in 0..<6 { group.addTask { try await rooms.replaceToken(caller, with: .test(token)).ref } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(refs.allSatisfy { $0 == refs[0] })
        try await fixture.end()
    }

    @Test func aSideReplacesItsTokenSixTimesInTenMinutes() async throws {
        let fixture = try await BrokerFixture()
        let room = try await fixture.create(life: 3_600, codeLife: 3_600, token: fixture.token(1))
        let joined = try await fixture.accept(token: fixture.token(1))
        let guesser = fixture.caller(room.room, "creator")
        for byte: UInt8 in 10...15 {
            _ = try await fixture.broker.rooms.replaceToken(guesser, with: .test(fixture.token(byte)))
        }
        await #expect(throws: Shortage.overShare(.tokenReplacements, retryAfterSeconds: 600)) {
            try await fixture.broker.rooms.replaceToken(guesser, with: .test(fixture.token(16)))
        }
        // A caller who knows only the client id does not use up the side's own quota.
        let creator = fixture.caller(room.room, "creator", room.member)
        for byte: UInt8 in 2...7 {
            _ = try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(byte)))
        }
        let before = try written(fixture)
        await #expect(throws: Shortage.overShare(.tokenReplacements, retryAfterSeconds: 600)) {
            try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(8)))
        }
        // The current token still gets its answer.
        _ = try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(7)))
        #expect(try written(fixture) == before)
        _ = try await fixture.broker.rooms.replaceToken(
            fixture.caller(room.room, "joiner", joined.member), with: .test(fixture.token(8)))
        fixture.clock.advance(600_000)
        _ = try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(8)))
        try await fixture.end()
    }

    // Promise: log-grows-with-creations
    @Test func entriesInTheLogAreChargedAsCreations() async throws {
        let fixture = try await BrokerFixture()
        let shares = fixture.broker.shares
        func used() -> Int { shares.used(.creations, now: fixture.clock.now) }
        let token = try fixture.token(1)
        let room = try await charged(fixture) { try await fixture.create(token: token, charging: $0) }
        #expect(used() == 1)
        _ = try await charged(fixture) { try await fixture.create(token: token, charging: $0) }
        #expect(used() == 1, "a repeat costs nothing")
        let joined = try await charged(fixture, Self.other) { _ in try await fixture.accept() }
        await #expect(throws: BrokerError.joinCodeInUse) {
            try await charged(fixture) { try await fixture.create(client: "another", charging: $0) }
        }
        #expect(used() == 1)
        let creator = fixture.caller(room.room, "creator", room.member)
        _ = try await charged(fixture) { try await fixture.broker.rooms.replaceToken(creator, with: .test(token), charging: $0) }
        #expect(used() == 1)
        _ = try await charged(fixture) {
            try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(2)), charging: $0)
        }
        #expect(used() == 2)
        let joiner = fixture.caller(room.room, "joiner", joined.member)
        let knock = try await charged(fixture, Self.other) {
            try await fixture.broker.rooms.report(joiner, leaving: false, charging: $0)
        }
        #expect(knock == .queued)
        #expect(used() == 3 && shares.used(.queuedPushes) == 1)
        let again = try await charged(fixture, Self.other) {
            try await fixture.broker.rooms.report(joiner, leaving: false, charging: $0)
        }
        #expect(again == .throttled)
        #expect(used() == 3 && shares.used(.queuedPushes) == 1)
        try await fixture.end()
    }

    @Test func aPushIsChargedUntilItsOutcome() async throws {
        let slowly: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (5_000, .delivered) }
        try await CompanionStage.play(outcome: slowly) { stage in
            let broker = try #require(await stage.simulated.run?.broker)
            try await stage.register(1)
            try await stage.register(2)
            let charges = try RequestCharges(broker.shares, Owners(broker.shares.network(Self.other)))
            try charges.charge(CompanionStage.alice)
            _ = try await stage.take(.question, charging: charges)
            #expect(broker.shares.used(.queuedPushes) == 2)
            #expect(broker.shares.used(.creations, now: stage.now) == 2)
            #expect(broker.shares.used(.storeOperations) == 1 && broker.shares.used(.arenaSlots) == 2)
            charges.end()
            await stage.advance(6_000)
            #expect(broker.shares.used(.queuedPushes) == 0)
            #expect(broker.shares.used(.storeOperations) == 0 && broker.shares.used(.arenaSlots) == 0)
        }
    }

    // Promise: nobodys-share-taken
    @Test func aNetworkLeavesRoomForOthers() throws {
        let shares = Shares()
        let (flood, other) = (Owners(shares.network(BrokerFixture.here)), Owners(shares.network(Self.other)))
        var held: [RequestCharges] = []
        #expect(throws: Shortage.overShare(.storeOperations, retryAfterSeconds: 5)) {
            while held.count < 4_096 { held.append(try RequestCharges(shares, flood)) }
        }
        #expect((700...1_024).contains(held.count), "\(held.count)")
        let before = shares.used(.storeOperations)
        for _ in 0..<100 { held.append(try RequestCharges(shares, other)) }
        for charges in held { charges.end() }
        #expect(before > 0 && shares.used(.storeOperations) == 0 && shares.used(.arenaSlots) == 0)
    }

    @Test func aSidesReportsAreLimited() async throws {
        let fixture = try await BrokerFixture()
        let room = try await fixture.create()
        let joined = try await fixture.accept()
        let creator = fixture.caller(room.room, "creator", room.member)
        for _ in 0..<5 { _ = try await fixture.broker.rooms.report(creator, leaving: true) }
        do {
            _ = try await fixture.broker.rooms.report(creator, leaving: true)
            Issue.record("a sixth report was taken")
        } catch {
            guard case .tooManyRequests(retryAfterSeconds: 1...5) = BrokerError(thrown: error) else { throw error }
        }
        _ = try await fixture.broker.rooms.report(fixture.caller(room.room, "joiner", joined.member), leaving: true)
        try await fixture.end()
    }

    @Test func aSidesConcurrentOperationsAreLimited() async throws {
        let fixture = try await BrokerFixture()
        let room = try await fixture.create(token: fixture.token(1))
        let joined = try await fixture.accept()
        let shares = fixture.broker.shares
        var held: [RequestCharges] = []
        /// Starts a request of its own network that does not end.
        func ask(_ client: String, _ member: MemberSecret?, _ address: UInt32) async throws {
            let charges = try RequestCharges(shares, Owners(shares.network(.v4(address, port: 1))))
            held.append(charges)
            _ = try await fixture.broker.rooms.withdrawToken(fixture.caller(room.room, client, member), charging: charges)
        }
        for address: UInt32 in 1...8 { try await ask("creator", room.member, address) }
        await #expect(throws: Shortage.overShare(.storeOperations, retryAfterSeconds: 5)) {
            try await ask("creator", room.member, 9)
        }
        try await ask("joiner", joined.member, 9)
        for charges in held { charges.end() }
        #expect(shares.used(.storeOperations) == 0)
        held = []
        try await ask("creator", room.member, 1)
        held[0].end()
        try await fixture.end()
    }

    @Test func aNetworkLeavesRoomInTheBacklog() async throws {
        let fixture = try await BrokerFixture()
        let shares = fixture.broker.shares
        let (flood, other) = (Owners(shares.network(BrokerFixture.here)), Owners(shares.network(Self.other)))
        let token = try fixture.token(1)
        let room = try await charged(fixture) { try await fixture.create(token: token, charging: $0) }
        #expect(shares.used(.ledgerBacklog) == 1)
        _ = try await charged(fixture) { try await fixture.create(token: token, charging: $0) }
        #expect(shares.used(.ledgerBacklog) == 1, "a repeat writes nothing")
        let most = shares.table[.ledgerBacklog].total / 8
        _ = try shares.charge(.ledgerBacklog, most * 5 / 8, to: flood)
        let creator = fixture.caller(room.room, "creator", room.member)
        await #expect(throws: Shortage.overShare(.ledgerBacklog, retryAfterSeconds: 5)) {
            try await charged(fixture) {
                try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(2)), charging: $0)
            }
        }
        #expect(shares.used(.creations, now: fixture.clock.now) == 1, "what was refused is given back")
        _ = try await charged(fixture, Self.other) {
            try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(2)), charging: $0)
        }
        #expect(shares.allows(.ledgerBacklog, 1_000, to: other))
        // The log is published.
        shares.clear(.ledgerBacklog)
        _ = try await charged(fixture) {
            try await fixture.broker.rooms.replaceToken(creator, with: .test(fixture.token(3)), charging: $0)
        }
        #expect(shares.used(.ledgerBacklog) == 1)
        try await fixture.end()
    }

    @Test func aPrincipalIsChargedInsteadOfItsNetwork() throws {
        let shares = Shares()
        let network = shares.network(BrokerFixture.here)
        let charges = try RequestCharges(shares, Owners(network))
        try charges.charge(CompanionStage.alice)
        #expect(charges.owners.payer != network && !charges.owners.payer.isBackEnd)
        #expect(shares.used(.storeOperations) == 1)
        try charges.charge(CompanionStage.backEnd)
        #expect(charges.owners.payer.isBackEnd)
        let named = Array("named".utf8)
        let backEnd = try RequestCharges(shares, Owners(shares.backEnd(named.span)))
        try backEnd.charge(CompanionStage.alice)
        #expect(backEnd.owners.payer.isBackEnd, "the operator has named it")
    }

    @Test func thePolicysBudgetSetsTheShare() throws {
        let standard = ShareTable.standard(Budgets(10_000, 600_000, 1_000_000, 600_000))
        #expect(standard == ShareTable.standard)
        let other = ShareTable.standard(Budgets(10, 60_000, 1_000, 600_000), backEndCreations: 1_000)[.creations]
        #expect(other.total == 100 && other.network == Share(10) && other.backEnd == Share(100) && other.windowMs == 60_000)
    }
}

extension Budgets {
    fileprivate init(_ own: Int, _ ownMs: UInt64, _ all: Int, _ allMs: UInt64) {
        self.init(perAddress: Budget(count: own, windowMs: ownMs), overall: Budget(count: all, windowMs: allMs))
    }
}
