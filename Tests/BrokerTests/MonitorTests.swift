import Policy
import Sealing
import Sodium
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

/// Devices of a monitor, and their pushes about a printer.
@Suite struct MonitorTests {
    private typealias Stage = MonitorStage
    private static let other = Array("p1s_02".utf8)

    // MARK: Devices

    @Test func theSameTokenKeepsItsDevice() async throws {
        try await Stage.play { stage in
            let first = try await stage.register(1)
            let again = try await stage.register(1)
            #expect(first.isNew && !again.isNew && again.id == first.id && again.ref == first.ref)
            #expect(try await stage.set(first, removing: .paused))
            // The device watches another printer now, under another seal, with the same preferences.
            let moved = try await stage.register(1, at: Self.other)
            #expect(!moved.isNew && moved.id == first.id && moved.ref != first.ref)
            #expect(moved.handleKey.secret == first.handleKey.secret)
            #expect(try await stage.counts.registrations == 1)
            #expect(try await stage.take(.status(from: .idle, to: .running)).receipt.pushes == 0)
            #expect(try await stage.take(.status(from: .idle, to: .running), of: Self.other).receipt.pushes == 1)
            #expect(try await stage.take(.status(from: .running, to: .paused), of: Self.other).receipt.pushes == 0)
            #expect(try await stage.register(2).isNew)
        }
    }

    @Test func aDeviceWithoutAPrinterGetsNoPush() async throws {
        try await Stage.play { stage in
            let device = try await stage.register(1, at: nil)
            for event in [PrinterEvent.status(from: .idle, to: .running), .progress(60)] {
                #expect(try await stage.take(event).receipt.pushes == 0)
            }
            #expect(try await stage.monitor.devices(Stage.backEnd, watching: Stage.printer).isEmpty)
            #expect(try await stage.register(1).id == device.id)
            #expect(try await stage.run() == .started)
            #expect(await stage.pushes().count == 1)
            // A registration without a printer ends the watch.
            try await stage.register(1, at: nil)
            #expect(try await stage.take(.status(from: .idle, to: .running)).receipt.pushes == 0)
        }
    }

    /// All owners of a deployment share its printers.
    @Test func newsGoesToTheDevicesOfAllOwners() async throws {
        try await Stage.play { stage in
            let own = try await stage.register(1)
            let others = try await stage.register(1, of: Stage.bob)
            try await stage.register(2, of: Stage.bob, at: Self.other)
            #expect(own.id != others.id && own.handleKey.secret != others.handleKey.secret)
            #expect(try await stage.take(.status(from: .idle, to: .running)).receipt.pushes == 2)
            let handles = await stage.pushes().map(\.collapseID)
            // Each device has its own key.
            #expect(handles.count == 2 && handles[0] != handles[1])
            // Another user's device looks like an unknown one.
            #expect(try await !stage.set(own, of: Stage.bob, removing: .enabled))
            try await stage.monitor.delete(Stage.bob, device: own.id)
            #expect(try await stage.take(.status(from: .idle, to: .running)).receipt.pushes == 2)
            try await stage.monitor.delete(Stage.alice, device: own.id)
            try await stage.monitor.delete(Stage.alice, device: own.id)
            #expect(try await stage.take(.status(from: .idle, to: .running)).receipt.pushes == 1)
            #expect(try await !stage.set(own, adding: .enabled))
        }
    }

    @Test func aBackEndListsAPrintersDevices() async throws {
        try await Stage.play { stage in
            let (first, second, silent) = (
                try await stage.register(1), try await stage.register(2, of: Stage.bob), try await stage.register(3)
            )
            #expect(try await stage.set(second, of: Stage.bob, removing: [.start, .milestone]))
            #expect(try await stage.set(silent, removing: .enabled))
            let all: DevicePreferences = [.enabled, .start, .complete, .failed, .paused, .milestone]
            let devices = try await stage.monitor.devices(Stage.backEnd, watching: Stage.printer)
            #expect(Set(devices.map(\.id)) == [first.id, second.id])
            #expect(devices.first { $0.id == first.id }?.preferences.isSuperset(of: all) == true)
            #expect(
                devices.first { $0.id == second.id }?.preferences.intersection(all) == [.enabled, .complete, .failed, .paused])
            #expect(try await stage.monitor.devices(Stage.backEnd, watching: Self.other).isEmpty)
            await #expect(throws: BrokerError.backEndOnly) {
                try await stage.monitor.devices(Stage.alice, watching: Stage.printer)
            }
        }
    }

    // MARK: Preferences

    @Test func newsFollowsPreferences() async throws {
        let news: [(PrinterEvent, PrinterNews, DevicePreferences)] = [
            (.status(from: .idle, to: .running), .started, .start), (.status(from: .running, to: .paused), .paused, .paused),
            (.status(from: .running, to: .failed), .failed, .failed),
            (.status(from: .running, to: .complete), .complete, .complete), (.progress(25), .milestone(25), .milestone),
        ]
        try await Stage.play { stage in
            let (whole, silent) = (try await stage.register(100), try await stage.register(101))
            #expect(try await stage.set(silent, removing: .enabled))
            for (number, (_, _, preference)) in news.enumerated() {
                let device = try await stage.register(UInt8(number))
                #expect(try await stage.set(device, removing: preference))
            }
            for (number, (event, said, _)) in news.enumerated() {
                let before = await stage.pushes().count
                let (told, receipt) = try await stage.take(event)
                #expect(told == said && receipt.pushes == news.count)
                let tokens = await stage.pushes()[before...].map { $0.token }
                #expect(Set(tokens) == Set([100] + (0..<UInt8(news.count)).filter { $0 != number }), "\(said)")
            }
            // Preferences that were not named stay as they are.
            #expect(try await stage.set(silent, adding: .enabled, removing: .start))
            #expect(try await stage.set(silent))
            let devices = try await stage.monitor.devices(Stage.backEnd, watching: Stage.printer)
            #expect(devices.first { $0.id == silent.id }?.preferences.contains([.enabled, .complete]) == true)
            #expect(devices.first { $0.id == silent.id }?.preferences.contains(.start) == false)
            #expect(devices.first { $0.id == whole.id }?.preferences.contains(.start) == true)
        }
    }

    /// Preferences that change during a renewal apply to the renewed device, whichever of the two is stored first.
    @Test func aConcurrentRenewalKeepsPreferences() async throws {
        try await Stage.play { stage in
            for (byte, setsFirst) in [(UInt8(1), true), (2, false)] {
                let device = try await stage.register(byte)
                let (isSet, renewed): (Bool, Registered)
                if setsFirst {
                    async let set = stage.set(device, removing: .start)
                    async let moved = stage.register(byte, at: Self.other)
                    (isSet, renewed) = try await (set, moved)
                } else {
                    async let moved = stage.register(byte, at: Self.other)
                    async let set = stage.set(device, removing: .start)
                    (isSet, renewed) = try await (set, moved)
                }
                #expect(isSet && renewed.id == device.id)
            }
            #expect(try await stage.take(.status(from: .idle, to: .running), of: Self.other).receipt.pushes == 0)
            #expect(try await stage.take(.status(from: .running, to: .paused), of: Self.other).receipt.pushes == 2)
        }
    }

    // MARK: Changes of state

    @Test func onlySomeChangesAreNews() {
        for old in PrinterStatus.allCases {
            for new in PrinterStatus.allCases {
                let wasRunning = old == .running
                let news: PrinterNews? =
                    switch new {
                    case .running: wasRunning ? nil : .started
                    case .complete, .finish: wasRunning ? .complete : nil
                    case .failed: wasRunning ? .failed : nil
                    case .paused, .pause: wasRunning ? .paused : nil
                    default: nil
                    }
                #expect(new.news(after: old) == news, "\(old) to \(new)")
            }
        }
    }

    @Test func eventsWithoutNewsAreNotStored() async throws {
        let written = Tally()
        let count: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = {
            if $0 == .apply { written.add() }
            return .none
        }
        try await Stage.play(fault: count) { stage in
            try await stage.register(1)
            #expect(try await stage.take(.status(from: .running, to: .idle)).news == nil)
            #expect(try await stage.take(.progress(24)).news == nil)
            #expect(written.count == 0)
            // A named event is stored, because its name must be remembered.
            #expect(try await !stage.take(.progress(24), eventID: "event").receipt.isRepeated)
            #expect(try await stage.take(.progress(24), eventID: "event").receipt.isRepeated)
        }
    }

    @Test func aNamedEventHappensOnce() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            #expect(try await stage.take(.status(from: .idle, to: .running), eventID: "event").receipt.pushes == 1)
            try await stage.restart()
            let again = try await stage.take(.status(from: .idle, to: .running), eventID: "event")
            #expect(again.news == nil && again.receipt.isRepeated && again.receipt.pushes == 0)
            // The same name is another event for another printer, and for another back end.
            #expect(try await !stage.take(.progress(25), of: Self.other, eventID: "event").receipt.isRepeated)
            let second = Principal(user: Array("second".utf8), isBackEnd: true, expiresMs: .max)
            #expect(try await !stage.take(.progress(25), eventID: "event", from: second).receipt.isRepeated)
            #expect(await stage.pushes().count == 2)
        }
    }

    @Test func onlyABackEndReportsEvents() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            for event in [PrinterEvent.status(from: .idle, to: .running), .progress(60)] {
                await #expect(throws: BrokerError.backEndOnly) { try await stage.take(event, from: Stage.alice) }
            }
            #expect(await stage.pushes().isEmpty)
        }
    }

    @Test func aPrinterHasABudgetOfItsOwn() async throws {
        try await Stage.play(limits: [(#""count": 600"#, #""count": 3"#)]) { stage in
            let namesake = Principal(user: Stage.printer, isBackEnd: false, expiresMs: .max)
            for byte in 1...3 { try await stage.register(UInt8(byte), of: namesake) }
            await #expect(throws: BrokerError.tooManyRequests(retryAfterSeconds: 60)) {
                try await stage.register(4, of: namesake)
            }
            for _ in 0..<3 { try await stage.run() }
            await #expect(throws: BrokerError.tooManyRequests(retryAfterSeconds: 60)) { try await stage.run() }
            #expect(try await stage.run(of: Self.other) == .started)
        }
    }

    /// An event succeeds while 24 users register and delete all the time, and the log stays valid.
    @Test func changingRegistrationsDelayNoEvent() async throws {
        try await Stage.play { stage in
            for byte in 1...70 { try await stage.register(UInt8(byte)) }
            let isOver = Tally()
            let told = try await withThrowingTaskGroup(of: Int.self) { group in
                for number in 0..<24 {
                    group.addTask {
                        let user = Principal(user: Array("user \(number)".utf8), isBackEnd: false, expiresMs: .max)
                        while isOver.count == 0 {
                            let device = try await stage.register(200, of: user)
                            try await stage.monitor.delete(user, device: device.id)
                        }
                        return 0
                    }
                }
                group.addTask {
                    defer { isOver.add() }
                    return try await stage.take(.status(from: .idle, to: .running)).receipt.pushes
                }
                return try await group.reduce(0, +)
            }
            #expect(told >= 70)
            let tokens = await stage.pushes().map { $0.token }
            #expect(Set(tokens).isSuperset(of: 1...70))
        }
    }

    // MARK: Milestones

    @Test func eachMilestoneIsReportedOnceARun() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            for (percent, told) in [
                (0, nil), (24, nil), (25, 25), (26, nil), (49, nil), (24, nil), (25, nil), (50, 50), (75, 75),
                (100, nil), (60, nil), (80, nil),
            ] as [(Int, Int?)] {
                #expect(try await stage.milestone(percent) == told, "\(percent)")
            }
            let pushes = await stage.pushes()
            #expect(pushes.map { $0.number("progress") } == [25, 50, 75])
            #expect(Set(pushes.map(\.collapseID)).count == 1)
        }
    }

    @Test func aJumpReportsTheHighestMilestone() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            #expect(try await stage.milestone(60) == 50)
            #expect(try await stage.milestone(30) == nil)
            #expect(try await stage.milestone(100) == 75)
            try await stage.run()
            #expect(try await stage.milestone(100) == 75)
        }
    }

    @Test func aStartResetsMilestonesAndAPauseDoesNot() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            #expect(try await stage.milestone(50) == 50)
            for pause in [PrinterStatus.paused, .pause] {
                #expect(try await stage.run(pause) == .started)
                #expect(try await stage.milestone(50) == nil)
            }
            #expect(try await stage.run(.complete) == .started)
            #expect(try await stage.milestone(50) == 50)
            // Each printer has its own run.
            #expect(try await stage.milestone(50, of: Self.other) == 50)
        }
    }

    @Test func aRunIsTrackedWithoutDevicesAndAcrossRestarts() async throws {
        try await Stage.play { stage in
            #expect(try await stage.milestone(30) == 25)
            try await stage.restart()
            try await stage.register(1)
            #expect(try await stage.milestone(30) == nil)
            #expect(try await stage.milestone(50) == 50)
            try await stage.restart()
            #expect(try await stage.milestone(74) == nil)
            #expect(try await stage.run(.failed) == .started)
            try await stage.restart()
            #expect(try await stage.milestone(30) == 25)
            #expect(await stage.pushes().count == 3)
        }
    }

    /// A run is kept for weeks while it sends events, and is forgotten otherwise.
    @Test func aRunIsKeptWhileItSendsEvents() async throws {
        try await Stage.play { stage async throws in
            #expect(try await stage.milestone(50) == 50)
            for day in 1...16 {
                await stage.sleep(86_400_000)
                #expect(try await stage.milestone(51) == nil, "after \(day) days")
                #expect(try await stage.counts.sessions == 1)
            }
            await stage.sleep(8 * 86_400_000)
            #expect(try await stage.counts.sessions == 0)
            #expect(try await stage.milestone(51) == 50)
        }
    }

    /// Concurrent reports of the same progress report one milestone.
    @Test func concurrentReportsTellAMilestoneOnce() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let told = try await withThrowingTaskGroup(of: Int?.self) { group in
                for _ in 0..<6 { group.addTask { try await stage.milestone(50) } }
                return try await group.reduce(into: [Int?]()) { $0.append($1) }
            }
            #expect(told.compactMap(\.self) == [50])
            #expect(await stage.pushes().count == 1)
        }
    }

    // MARK: What a push says

    // Promise: audience-handle
    @Test func aPushNamesThePrinterByAHandle() async throws {
        try await Stage.play { stage in
            let device = try await stage.register(1)
            try await stage.run()
            try await stage.take(.progress(25))
            try await stage.take(.status(from: .running, to: .complete))
            let pushes = await stage.pushes()
            let keys = try #require(await stage.simulated.run?.keys)
            let printer = Stage.printer
            let handle = keys.handle(key: device.handleKey.secret, kind: "printer", slot: 0, id: printer.span)
            let named = handle.base64url
            let titles = ["Print Started", "25% Complete", "Print Complete! 🎉"]
            #expect(pushes.count == 3)
            for (push, title) in zip(pushes, titles) { #expect(push.says("\"title\":\"\(title)\"")) }
            // The end of a print replaces its start. Milestones replace each other.
            #expect(pushes[0].collapseID == pushes[2].collapseID && pushes[0].collapseID != pushes[1].collapseID)
            for push in pushes {
                #expect(!push.says("p1s"))
                #expect(push.says("\"thread-id\":\"\(named)\"") && push.says("\"prefix\":\"\(named)\""))
            }
        }
    }
}

/// A counter.
private final class Tally: Sendable {
    private let number = Mutex(0)

    func add() { number.withLock { $0 += 1 } }
    var count: Int { number.withLock { $0 } }
}
