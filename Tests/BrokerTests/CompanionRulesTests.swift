import Broker
import Courier
import Sealing
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

/// Events, claims and limits of the companion.
@Suite struct CompanionRulesTests {
    private typealias Stage = CompanionStage

    // MARK: Events that are named

    @Test func aNamedEventHappensOnce() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let first = try await stage.take(.approvalRequest, eventID: "event")
            let again = try await stage.take(.approvalRequest, eventID: "event")
            #expect(!first.isRepeated && again.isRepeated && again.pushes == 0)
            #expect(again.request == first.request && again.expires == first.expires && first.request != nil)
            // Another name, another session or another user makes it another event.
            for other in [
                try await stage.take(.approvalRequest, eventID: "other"),
                try await stage.take(.approvalRequest, session: Array("other".utf8), eventID: "event"),
                try await stage.take(.approvalRequest, of: Stage.bob, eventID: "event"),
            ] { #expect(!other.isRepeated && other.request != first.request) }
            await stage.advance(1_000)
            #expect(stage.sightings.filter { $0.says("\"approval\"") }.count == 3)
        }
    }

    /// The event is remembered under other keys after half a day, and forgotten after a day and a half.
    @Test func aNamedEventIsRememberedAcrossPlaces() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let first = try await stage.take(.question, eventID: "event")
            #expect(first.pushes == 1)
            for hours in [6, 12] {
                await stage.sleep(6 * 3_600_000)
                let again = try await stage.take(.question, eventID: "event")
                #expect(again.isRepeated && again.pushes == 0, "after \(hours) hours")
            }
            await stage.sleep(24 * 3_600_000)
            let later = try await stage.take(.question, eventID: "event")
            #expect(!later.isRepeated && later.pushes == 1)
        }
    }

    @Test func aNamedEventSurvivesARestart() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let first = try await stage.take(.approvalRequest, eventID: "event")
            try await stage.restart()
            let again = try await stage.take(.approvalRequest, eventID: "event")
            #expect(again.isRepeated && again.request == first.request)
            await stage.advance(1_000)
            #expect(stage.sightings.count == 1)
        }
    }

    // MARK: Elapsed time

    private static let elapsed = "elapsedSeconds"

    /// An event without elapsed time counts on from the last report, also after a restart.
    @Test func elapsedTimeContinuesFromTheLastReport() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            try await stage.take(.progress(SessionProgress(elapsedSeconds: 345)))
            await stage.advance(15_000)
            try await stage.take(.state("processing"))
            await stage.advance(15_000)
            try await stage.restart()
            try await stage.take(.question)
            await stage.advance(15_000)
            try await stage.take(.progress(SessionProgress(completed: 1, total: 2)))
            await stage.advance(15_000)
            #expect(stage.pushes(to: 1).compactMap { $0.number(Self.elapsed) } == [340, 360, 370, 390])
            // A lower value is accepted: the back end decides.
            try await stage.take(.progress(SessionProgress(elapsedSeconds: 100)))
            await stage.advance(15_000)
            try await stage.take(.state("idle"))
            await stage.advance(15_000)
            #expect(stage.pushes(to: 1).suffix(2).compactMap { $0.number(Self.elapsed) } == [100, 110])
        }
    }

    /// It begins at 0 in each session, also after a session's end.
    @Test func eachSessionHasItsOwnElapsedTime() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            try await stage.start(2, session: Array("other".utf8))
            try await stage.take(.progress(SessionProgress(elapsedSeconds: 500)))
            try await stage.take(.state("idle"), session: Array("other".utf8))
            await stage.advance(20_000)
            #expect(stage.pushes(to: 2).map { $0.number(Self.elapsed) } == [0])
            try await stage.take(.complete(success: true))
            try await stage.start(3)
            try await stage.take(.state("idle"))
            await stage.advance(100)
            #expect(stage.pushes(to: 3).map { $0.number(Self.elapsed) } == [0])
        }
    }

    @Test func aRefusedElapsedTimeChangesNothing() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            try await stage.take(.progress(SessionProgress(elapsedSeconds: 50)))
            await stage.advance(15_000)
            for bad in [-1, 86_401, Int.max, Int.min] {
                await #expect(throws: BrokerError.outOfRange("data.elapsedSeconds", allowed: "0 to 86400")) {
                    try await stage.take(.progress(SessionProgress(elapsedSeconds: bad)))
                }
            }
            try await stage.take(.state("idle"))
            await stage.advance(100)
            #expect(stage.pushes(to: 1).map { $0.number(Self.elapsed) } == [50, 60])
        }
    }

    /// No concurrent report fails, and a concurrent claim reverts none of them.
    @Test func concurrentReportsAllSucceed() async throws {
        try await Stage.play { stage in
            try await stage.take(.state("idle"))
            let reports = (1...20).map { number in
                Task(executorPreference: stage.simulated.loop) {
                    try await stage.take(.progress(SessionProgress(elapsedSeconds: 1_000 + number)))
                }
            }
            #expect(try await !claim(stage, "phone"))
            for report in reports { _ = try await report.value }
            try await stage.start(1)
            try await stage.take(.state("idle"))
            await stage.advance(100)
            let elapsed = try #require(stage.pushes(to: 1).first?.number(Self.elapsed))
            #expect((1_000...1_020).contains(elapsed))
        }
    }

    // MARK: News

    @Test func socketsGetNewsWithoutText() async throws {
        try await Stage.play { stage in
            let session = Stage.session
            try await stage.take(.state("processing", before: "idle"))
            try await stage.take(.state("idle", before: "a secret"))
            try await stage.take(.progress(SessionProgress(elapsedSeconds: 45, completed: 2, total: 5)))
            await stage.advance(3_000)
            try await stage.take(.progress(SessionProgress()))
            let receipt = try await stage.take(.approvalRequest, eventID: "event")
            let (request, expires) = (try #require(receipt.request), try #require(receipt.expires))
            try await stage.take(.approvalRequest, eventID: "event")
            try await stage.take(.question)
            try await stage.take(.complete(success: true))
            #expect(
                stage.told(Stage.alice) == [
                    .state("processing", before: "idle", session: session), .state("idle", before: nil, session: session),
                    .progress(SessionProgress(elapsedSeconds: 45, completed: 2, total: 5), session: session),
                    .progress(SessionProgress(elapsedSeconds: 48), session: session),
                    .approvalRequest(request: request, session: session, expires: expires),
                ])
            #expect(stage.told(Stage.backEnd).isEmpty && stage.told(Stage.bob).isEmpty)
            await #expect(throws: BrokerError.self) { try await stage.take(.state("a secret")) }
            #expect(stage.told(Stage.alice).count == 5, "what is refused is no news")
        }
    }

    // MARK: Claims

    private func claim(
        _ stage: CompanionStage, _ device: String, _ type: ClientType = .ios, token: UInt8? = nil,
        of principal: Principal = Stage.alice
    ) async throws -> Bool {
        try await stage.companion.claim(
            principal, of: nil, session: Stage.session, device: Array(device.utf8), type: type,
            token: token.map { try stage.token($0) })
    }

    @Test func aSessionIsHandedOver() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            try await stage.register(2)
            #expect(try await !claim(stage, "phone", token: 1), "there was none before")
            #expect(try await !claim(stage, "phone", token: 1), "it is the same")
            #expect(try await claim(stage, "desktop", .desktop))
            #expect(try await !claim(stage, "desktop", .desktop))
            await stage.advance(1_000)
            try #require(stage.pushes(to: 1).count == 1)
            #expect(
                stage.pushes(to: 1)[0].says(#""type":"session_handoff""#)
                    && stage.pushes(to: 1)[0].says(#""handedOffTo":"desktop""#))
            // The desktop has no token, so nobody gets a push.
            #expect(try await claim(stage, "tablet", token: 2))
            await stage.advance(1_000)
            #expect(stage.sightings.count == 1)
            // The same session name of another user is another session.
            #expect(try await !claim(stage, "phone", of: Stage.bob))
            await stage.advance(1_000)
            #expect(stage.sightings.count == 1)
        }
    }

    @Test func anotherUsersTokenIsIgnored() async throws {
        try await Stage.play { stage in
            try await stage.register(1, of: Stage.bob)
            #expect(try await !claim(stage, "phone", token: 1))
            #expect(try await claim(stage, "desktop", .desktop))
            await stage.advance(1_000)
            #expect(stage.sightings.isEmpty)
        }
    }

    @Test func concurrentClaimsFollowEachOther() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...4 { try await stage.register(byte) }
            #expect(try await !claim(stage, "client 0", token: 1))
            let claims = (1...3).map { number in
                Task(executorPreference: stage.simulated.loop) {
                    try await self.claim(stage, "client \(number)", token: UInt8(1 + number))
                }
            }
            for claim in claims { #expect(try await claim.value, "each took over, one after the other") }
            await stage.advance(1_000)
            // Each client except the last got one push.
            #expect(stage.sightings.count == 3 && Set(stage.sightings.map(\.token)).count == 3)
            #expect(stage.pushes(to: 1).count == 1)
            let last = (1...3).filter { number in !stage.sightings.contains { $0.token == UInt8(1 + number) } }
            #expect(try await !claim(stage, "client \(last[0])"), "it has the session")
        }
    }

    @Test func aClaimSurvivesARestart() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            #expect(try await !claim(stage, "phone", token: 1))
            try await stage.restart()
            #expect(try await !claim(stage, "phone", token: 1))
            #expect(try await claim(stage, "desktop", .desktop))
            await stage.advance(1_000)
            #expect(stage.sightings.count == 1)
            // The session is over, so it has no active client.
            try await stage.take(.complete(success: true))
            #expect(try await !claim(stage, "phone"))
        }
    }

    /// While the ratchet is held, new sessions have the same place as those that the step has expired.
    @Test func aClockStepStopsNoSession() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            try await stage.take(.state("idle"))
            stage.machine.step(25 * ClockTests.hour)
            for _ in 0..<2 { #expect(try await stage.take(.question).pushes == 1) }
            #expect(try await !claim(stage, "phone"))
            await stage.advance(120_000)
            #expect(try await stage.take(.question).pushes == 1)
        }
    }

    // MARK: Limits

    private static let threePushes = (old: #""count": 240, "seconds": 300"#, new: #""count": 3, "seconds": 300"#)

    @Test func aUserHasABudgetOfEvents() async throws {
        try await Stage.play(limits: [(old: #""count": 600, "seconds": 60"#, new: #""count": 3, "seconds": 60"#)]) { stage in
            for _ in 0..<3 { try await stage.take(.state("idle")) }
            await stage.advance(20_000)
            await #expect(throws: BrokerError.tooManyRequests(retryAfterSeconds: 40)) { try await stage.take(.approvalRequest) }
            #expect(try await stage.counts.timers == 0)
            // The user is charged, whoever calls. Other users have budgets of their own.
            await #expect(throws: BrokerError.self) { try await stage.take(.state("idle"), from: Stage.alice) }
            try await stage.take(.state("idle"), of: Stage.bob)
            await stage.advance(39_999)
            await #expect(throws: BrokerError.tooManyRequests(retryAfterSeconds: 1)) { try await stage.take(.state("idle")) }
            await stage.advance(1)
            try await stage.take(.state("idle"))
        }
    }

    @Test func aTokenHasABudgetOfPushes() async throws {
        try await Stage.play(limits: [Self.threePushes]) { stage in
            try await stage.register(1)
            // The token is charged, even for two users with one phone.
            try await stage.register(1, of: Stage.bob)
            for user in [Stage.alice, Stage.bob, Stage.alice] { #expect(try await stage.take(.question, of: user).pushes == 1) }
            for user in [Stage.alice, Stage.bob] {
                let receipt = try await stage.take(.question, of: user)
                #expect(receipt.pushes == 0 && receipt.throttled == 1)
            }
            await stage.advance(300_000)
            #expect(stage.sightings.count == 3)
            #expect(try await stage.take(.question).pushes == 1)
        }
    }

    /// An update beyond the budget waits for the end of the budget's window, and the last one is never dropped. With pauses of ten seconds each
    /// update finds its own window open. With four seconds most wait for it first.
    @Test(arguments: [10_000, 4_000] as [UInt64]) func anUpdateBeyondTheBudgetWaits(pause: UInt64) async throws {
        let limits = [
            Self.threePushes,
            (old: #""activityUpdateSeconds": 15"#, new: #""activityUpdateSeconds": 10"#),
        ]
        try await Stage.play(limits: limits) { stage in
            try await stage.start(1)
            let first = stage.now
            for total in 0..<10 {
                try await stage.take(.progress(SessionProgress(completed: 0, total: total)))
                await stage.advance(pause)
            }
            await stage.advance(to: first + 299_999)
            #expect(stage.pushes(to: 1).map(\.at) == [first, first + 10_000, first + 20_000])
            await stage.advance(1)
            #expect(stage.pushes(to: 1).count == 4)
            #expect(stage.pushes(to: 1).last?.at == first + 300_000 && stage.pushes(to: 1).last?.number("total") == 9)
            // The end ignores the budget.
            for _ in 0..<3 {
                try await stage.take(.state("idle"))
                await stage.advance(10_000)
            }
            #expect(try await stage.take(.complete(success: true)).pushes == 1)
        }
    }

    /// The event's alerts are charged before its updates fail.
    @Test func aFailedEventCostsNoBudget() async throws {
        let isFailing = Flag()
        let lookups = Mutex(0)
        let fault: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { call in
            guard call == .registrations, isFailing.isSet else { return .none }
            return lookups.withLock { count in
                count += 1
                return count % 2 == 0 ? .failed : .none
            }
        }
        try await Stage.play(limits: [Self.threePushes], fault: fault) { stage in
            try await stage.register(1)
            isFailing.set(true)
            for event in [CompanionEvent.approvalRequest, .question, .complete(success: true), .question] {
                await #expect(throws: BrokerError.storageUnavailable) { try await stage.take(event) }
            }
            #expect(lookups.withLock { $0 } == 8)
            isFailing.set(false)
            for _ in 0..<3 { #expect(try await stage.take(.question).pushes == 1) }
            #expect(try await stage.take(.question).throttled == 1)
        }
    }

    /// Both find the window open and reserve budget. One is stored, the other waits for the next window.
    @Test func oneOfTwoConcurrentUpdatesIsCounted() async throws {
        try await Stage.play(limits: [Self.threePushes]) { stage in
            try await stage.start(1)
            let first = stage.now
            for round in 0..<2 {
                let events = (0..<2).map { _ in
                    Task(executorPreference: stage.simulated.loop) { try await stage.take(.state("idle")) }
                }
                for event in events { #expect(try await event.value.throttled == 0, "round \(round)") }
                await stage.advance(15_000)
            }
            await stage.advance(15_000)
            #expect(stage.pushes(to: 1).map(\.at) == [0, 15_000, 30_000].map { first + $0 })
        }
    }

    @Test func valuesOutsideThePolicyAreRefused() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            await #expect(throws: BrokerError.outOfRange("data.todoProgress.total", allowed: "0 to 999")) {
                try await stage.take(.progress(SessionProgress(completed: 0, total: 1_000)))
            }
            await #expect(throws: BrokerError.self) { try await stage.take(.state("a secret")) }
            #expect(try await stage.counts.sessions == 0)
            #expect(try await stage.take(.progress(SessionProgress(elapsedSeconds: 86_400))).pushes == 1)
            await stage.advance(100)
            #expect(stage.pushes(to: 1).count == 1)
        }
    }

    /// Either all five devices get a push, or none does and the caller gets an error.
    @Test func aFullQueueRefusesWholeEvents() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...5 { try await stage.register(byte) }
            try await stage.start(6)
            let outbox = try #require(await stage.simulated.run?.broker.outbox)
            await outbox.fill(leaving: 4)
            for event in [CompanionEvent.approvalRequest, .question, .complete(success: true)] {
                await #expect(throws: BrokerError.tooManyPushes) { try await stage.take(event, eventID: "event") }
            }
            await #expect(throws: BrokerError.tooManyPushes) {
                try await stage.companion.clearSession(Stage.alice, session: Stage.session)
            }
            let counts = try await stage.counts
            #expect(counts.jobs == 0 && counts.timers == 0 && counts.sessions == 0 && counts.registrations == 6)
            // One Live Activity has room.
            #expect(try await stage.take(.state("idle")).pushes == 1)
            await stage.advance(100)
            await outbox.fill(leaving: 0)
            await #expect(throws: BrokerError.tooManyPushes) { try await stage.take(.state("idle")) }
            await outbox.empty()
            #expect(try await stage.take(.question, eventID: "event").pushes == 6, "nothing of the first was kept")
        }
    }

    /// A request that times out with more pushes than the queue has room for waits, and delays no other.
    @Test func aTimerThatDoesNotFitDelaysNoOther() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...3 { try await stage.register(byte) }
            try await stage.register(4, of: Stage.bob)
            _ = try await stage.ask()
            _ = try await stage.ask(of: Stage.bob)
            await stage.advance(1_000)
            let outbox = try #require(await stage.simulated.run?.broker.outbox)
            await outbox.fill(leaving: 2)
            await stage.advance(60_000)
            func timedOut(_ byte: UInt8) -> Int { stage.pushes(to: byte).count { $0.says("timed_out") } }
            #expect(timedOut(4) == 1 && timedOut(1) + timedOut(2) + timedOut(3) == 0)
            await outbox.empty()
            await stage.advance(20_000)
            #expect((1...3).allSatisfy { timedOut($0) == 1 })
            #expect(await stage.count(.alarms) == 0)
        }
    }

    /// Of the updates that are due, those that fit into the queue leave.
    @Test func dueUpdatesLeaveAsFarAsTheyFit() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...3 { try await stage.start(byte) }
            try await stage.take(.state("processing"))
            try await stage.take(.state("idle"))
            await stage.advance(1_000)
            let outbox = try #require(await stage.simulated.run?.broker.outbox)
            func updated() -> Int { (1...3 as ClosedRange<UInt8>).count { stage.pushes(to: $0).count == 2 } }
            await outbox.fill(leaving: 2)
            await stage.advance(15_000)
            #expect(updated() >= 2)
            await outbox.empty()
            await stage.advance(15_000)
            #expect(updated() == 3)
        }
    }

    /// Updates that are due wait while the queue is full, which raises an alarm.
    @Test func dueUpdatesWaitForRoomInTheQueue() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            try await stage.take(.state("processing"))
            try await stage.take(.state("idle"))
            let outbox = try #require(await stage.simulated.run?.broker.outbox)
            await outbox.fill(leaving: 0)
            await stage.advance(20_000)
            #expect(stage.pushes(to: 1).count == 1)
            await outbox.empty()
            await stage.advance(1_000)
            #expect(stage.pushes(to: 1).count == 2)
            #expect(await stage.count(.alarms) == 1)
        }
    }
}
