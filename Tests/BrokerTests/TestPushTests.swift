import Sealing
import Storage
import Testing
import Vocabulary

@testable import Broker

/// Pushes that members and users ask for to their own addresses.
@Suite struct TestPushTests {
    private static let fourth = BrokerError.tooManyRequests(retryAfterSeconds: 3_600)

    @Test func aMemberTestsItsOwnPhoneWhileItIsPresent() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1)
            #expect(try await stage.test(1) == .queued)
            await stage.pass(60_000)
            #expect(await stage.pushes(1).count == 1)
            #expect(await stage.pushes(2).count == 1, "only the knock of the side that joined")
            // Presence still keeps knocks away.
            #expect(try await stage.report(2) == .peerPresent)
            await stage.pass(60_000)
            #expect(await stage.pushes(1).count == 1)
        }
    }

    @Test func aTestCostsNobodyAKnock() async throws {
        try await MeetingStage.play { stage in
            // Neither begins the other's throttle.
            let asked = [try await stage.test(1), try await stage.report(2), try await stage.test(1)]
            #expect(asked == [.queued, .queued, .queued])
            await stage.pass(1_000)
            #expect(await stage.pushes(1).count == 3)
        }
    }

    @Test func aTestNeedsNoGraceAfterAStart() async throws {
        try await MeetingStage.play { stage in
            try await stage.restart()
            let asked = stage.machine.monotonic
            #expect(try await stage.test(1) == .queued)
            await stage.pass(1_000)
            let sent = await stage.pushes(1)
            #expect(sent.count == 1 && sent[0] - asked < 1_000)
        }
    }

    @Test func anAddressGetsThreeInAnHour() async throws {
        try await MeetingStage.play { stage in
            let address = try await PushAddress.test(stage.token(1))
            for _ in 0..<3 { #expect(try await stage.test(1) == .queued) }
            await #expect(throws: Self.fourth) { try await stage.test(1) }
            // The rest of the window would show when somebody's first test was.
            await stage.pass(600_000)
            await #expect(throws: Self.fourth) { try await stage.test(1) }
            // Neither another token in between nor another room is a way around.
            _ = try await stage.replaceToken(1, with: .test(stage.token(9)))
            #expect(try await stage.test(1) == .queued)
            _ = try await stage.replaceToken(1, with: address)
            await #expect(throws: Self.fourth) { try await stage.test(1) }
            try await stage.makeRoom()
            #expect(try await stage.test(1) == .queued)
            _ = try await stage.replaceToken(1, with: address)
            await #expect(throws: Self.fourth) { try await stage.test(1) }
            // The peer's address has tests of its own.
            #expect(try await stage.test(2) == .queued)
            await stage.pass(3_600_001)
            #expect(try await stage.test(1) == .queued)
        }
    }

    @Test func aSideWithoutATokenHasNothingToTest() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.broker.rooms.withdrawToken(stage.caller(1))
            #expect(try await stage.test(1) == .noToken)
            #expect(stage.pushCount == 0)
        }
    }

    // Promise: test-push-own-address
    @Test func aUserTestsItsOwnDevices() async throws {
        try await CompanionStage.play { stage in
            try await stage.register(1)
            try await stage.register(2)
            try await stage.start(3)
            try await stage.register(4, of: CompanionStage.bob)
            #expect(try await stage.companion.test(CompanionStage.alice, charging: nil) == EventReceipt(pushes: 2))
            await stage.advance(1_000)
            #expect(Set(stage.sightings.map(\.token)) == [1, 2])
            #expect(stage.sightings.allSatisfy { $0.says("Task Complete") })
            #expect(try await stage.companion.test(CompanionStage.backEnd, charging: nil) == EventReceipt())
        }
    }

    @Test func eachAddressOfAUserHasItsTests() async throws {
        try await CompanionStage.play { stage in
            try await stage.register(1)
            for _ in 0..<3 { #expect(try await stage.companion.test(CompanionStage.alice, charging: nil).pushes == 1) }
            await #expect(throws: Self.fourth) { try await stage.companion.test(CompanionStage.alice, charging: nil) }
            // The same phone of another user is the same address.
            try await stage.register(1, of: CompanionStage.bob)
            await #expect(throws: Self.fourth) { try await stage.companion.test(CompanionStage.bob, charging: nil) }
            try await stage.register(2)
            #expect(
                try await stage.companion.test(CompanionStage.alice, charging: nil) == EventReceipt(pushes: 1, throttled: 1))
        }
    }

    @Test func refusedTestsCostNoEvents() async throws {
        try await CompanionStage.play(limits: [(#""count": 600"#, #""count": 5"#)]) { stage in
            try await stage.register(1)
            for _ in 0..<3 { #expect(try await stage.companion.test(CompanionStage.alice, charging: nil).pushes == 1) }
            for _ in 0..<9 {
                await #expect(throws: Self.fourth) { try await stage.companion.test(CompanionStage.alice, charging: nil) }
            }
            #expect(try await stage.take(.complete(success: true)).pushes == 1)
            // A test that sends something counts as an event.
            await #expect(throws: BrokerError.tooManyRequests(retryAfterSeconds: 60)) {
                try await stage.take(.complete(success: true))
            }
        }
    }

    @Test func onlyDevicesThatWatchThePrinterAreTested() async throws {
        try await MonitorStage.play { stage in
            try await stage.register(1)
            try await stage.register(2, at: Array("p1s_02".utf8))
            try await stage.register(3, of: MonitorStage.bob)
            let silent = try await stage.register(4)
            #expect(try await stage.set(silent, removing: .enabled))
            try await stage.register(5, at: nil)
            let monitor = try await stage.monitor
            #expect(
                try await monitor.test(MonitorStage.alice, printer: MonitorStage.printer, charging: nil)
                    == EventReceipt(pushes: 1))
            #expect(await stage.pushes().map(\.token) == [1])
            #expect(try await monitor.test(MonitorStage.alice, printer: nil, charging: nil) == EventReceipt(pushes: 1))
            #expect(await stage.pushes().map(\.token) == [1, 5])
            #expect(try await monitor.test(MonitorStage.alice, printer: [0x61], charging: nil) == EventReceipt())
        }
    }

    @Test func aUsersOwnPhoneRings() async throws {
        try await CallsStage.play { stage in
            try await stage.register(1)
            try await stage.register(2, of: CallsStage.alice)
            #expect(try await stage.calls.test(CallsStage.bob, charging: nil) == EventReceipt(pushes: 1))
            #expect(await stage.pushes().map(\.token) == [1])
        }
    }
}

extension MeetingStage {
    fileprivate func test(_ slot: UInt8) async throws -> Delivery { try await broker.rooms.test(caller(slot)) }

    /// The token of a side in the first room, or another one.
    fileprivate func token(_ slot: UInt8) throws -> Secret {
        try Secret(copying: ([slot, 0, 0] + [UInt8](repeating: 7, count: 29)).span)
    }

    fileprivate func replaceToken(_ slot: UInt8, with address: PushAddress) async throws -> Ref {
        try await broker.rooms.replaceToken(caller(slot), with: address).ref
    }
}
