import Broker
import Courier
import Storage
import Synchronization
import Testing
import Vocabulary

/// A Live Activity gets one update in 15 s. These tests check which one leaves, and when.
@Suite struct ActivityWindowTests {
    private typealias Stage = CompanionStage
    private static let window: UInt64 = 15_000

    @Test func aWindowOpensToTheMillisecond() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            let first = stage.now
            #expect(try await stage.take(.state("processing")).pushes == 1)
            await stage.advance(Self.window - 1)
            #expect(try await stage.take(.state("idle")).pushes == 1)
            #expect(stage.pushes(to: 1).map(\.at) == [first])
            await stage.advance(1)
            #expect(stage.pushes(to: 1).map(\.at) == [first, first + Self.window])
            #expect(stage.pushes(to: 1).last?.says(#""status":"idle""#) == true)
            // An update at the moment in which the window opens leaves at once.
            await stage.advance(Self.window)
            try await stage.take(.state("error"))
            await stage.advance(0)
            #expect(stage.pushes(to: 1).map(\.at) == [first, first + Self.window, first + 2 * Self.window])
        }
    }

    @Test func onlyTheNewestUpdateWaits() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            let first = stage.now
            for total in 0..<200 {
                try await stage.take(.progress(SessionProgress(completed: 0, total: total)))
                await stage.advance(200)
            }
            await stage.advance(2 * Self.window)
            let pushes = stage.pushes(to: 1)
            #expect(pushes.map(\.at) == [0, 1, 2, 3].map { first + $0 * Self.window })
            #expect(pushes.map { $0.number("total") } == [0, 74, 149, 199])
            let stamps = pushes.compactMap { $0.number("timestamp") }
            #expect(stamps == stamps.sorted() && Set(stamps).count == 4, "\(stamps)")
        }
    }

    @Test func eachTokenHasItsOwnWindow() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            try await stage.start(2, activity: "other")
            try await stage.take(.state("processing"))
            await stage.advance(1_000)
            try await stage.start(3, activity: "third")
            try await stage.take(.state("idle"))
            await stage.advance(100)
            #expect([1, 2, 3].map { stage.pushes(to: $0).count } == [1, 1, 1])
        }
    }

    @Test func anEndIgnoresTheWindowAndDestroysTheToken() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            try await stage.take(.state("processing"))
            try await stage.take(.state("idle"))
            #expect(try await stage.take(.complete(success: true)).pushes == 1)
            #expect(try await stage.counts.registrations == 0)
            await stage.advance(2 * Self.window)
            let pushes = stage.pushes(to: 1)
            try #require(pushes.count == 2, "what waited did not leave any more")
            #expect(pushes[1].says(#""event":"end""#))
            #expect(pushes[1].stamp > pushes[0].stamp, "a phone drops what is not later")
            #expect(try await stage.take(.state("idle")).pushes == 0)
        }
    }

    @Test func aNewTokenInheritsWindowAndWaitingUpdate() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            let first = stage.now
            try await stage.take(.state("processing"))
            await stage.advance(5_000)
            try await stage.take(.state("idle"))
            try await stage.start(2, previous: 1)
            await stage.advance(Self.window)
            let (old, new) = (stage.pushes(to: 1), stage.pushes(to: 2))
            try #require(old.map(\.at) == [first] && new.map(\.at) == [first + Self.window])
            #expect(new[0].says(#""status":"idle""#) && new[0].stamp > old[0].stamp)
        }
    }

    /// Apple has not answered when the token changes or is sealed again. The state must arrive nevertheless, also after a restart.
    @Test(arguments: [true, false], [true, false]) func aNewSealInheritsTheUnansweredUpdate(
        isAnotherToken: Bool, isRestarted: Bool
    ) async throws {
        let isSilent = Flag(true)
        let outcome: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in
            (isSilent.isSet ? 60_000 : 0, .failed(status: 503, reason: .serviceUnavailable, verdict: .keep))
        }
        try await Stage.play(outcome: outcome) { stage in
            let before = try await stage.start(1)
            // Ten seconds before a step of its place, so that the same token is sealed again.
            await stage.sleep(3_580_000)
            let first = stage.now
            try await stage.take(.state("processing"))
            await stage.advance(12_000)
            isSilent.set(false)
            let after = try await isAnotherToken ? stage.start(2, previous: 1) : stage.start(1)
            #expect(after.ref != before.ref && after.id == before.id)
            if isRestarted { try await stage.restart() }
            await stage.advance(to: first + Self.window)
            #expect(stage.pushes(to: 1).count == (isAnotherToken ? 1 : 2))
            let last = try #require(stage.pushes(to: isAnotherToken ? 2 : 1).last)
            #expect(last.at == first + Self.window && last.says(#""status":"processing""#))
            #expect(last.stamp > stage.pushes(to: 1)[0].stamp)
            await stage.advance(120_000)
            #expect(stage.sightings.count == 2)
        }
    }

    @Test func windowAndWaitingUpdateSurviveARestart() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            let first = stage.now
            try await stage.take(.state("processing"))
            try await stage.take(.state("idle"))
            try await stage.restart()
            #expect(stage.now < first + Self.window)
            await stage.advance(to: first + Self.window - 1)
            #expect(stage.pushes(to: 1).count == 1)
            await stage.advance(1)
            #expect(stage.pushes(to: 1).map(\.at) == [first, first + Self.window])
            // Work that became due while no broker ran is done at the start.
            try await stage.take(.state("error"))
            await stage.simulated.kill()
            stage.machine.pass(60_000)
            try await stage.start()
            await stage.advance(1_000)
            #expect(stage.pushes(to: 1).count == 3 && stage.pushes(to: 1)[2].says(#""status":"error""#))
        }
    }

    /// An older update that Apple has not accepted must not follow its replacement.
    @Test func aNewerUpdateReplacesAnUndeliveredOne() async throws {
        let isBusy = Flag(true)
        let outcome: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in
            isBusy.isSet ? (30_000, .failed(status: 503, reason: .serviceUnavailable, verdict: .keep)) : (0, .delivered)
        }
        try await Stage.play(outcome: outcome) { stage in
            try await stage.start(1)
            try await stage.take(.state("processing"))
            await stage.advance(Self.window)
            isBusy.set(false)
            try await stage.take(.state("idle"))
            await stage.advance(20_000)
            #expect(await stage.count(.pushesDelivered) == 1)
            // The first was no longer wanted before its next attempt, which is no failure of Apple's.
            #expect(await stage.count(.pushesFailed) == 0)
        }
    }

    /// Neither was answered when the broker was killed. The older one is not sent again.
    @Test func afterARestartOnlyTheNewestIsSent() async throws {
        let isSilent = Flag(true)
        let outcome: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (isSilent.isSet ? 600_000 : 0, .delivered)
        }
        try await Stage.play(outcome: outcome) { stage in
            try await stage.start(1)
            try await stage.take(.state("processing"))
            await stage.advance(Self.window)
            try await stage.take(.state("idle"))
            await stage.advance(1_000)
            #expect(stage.pushes(to: 1).count == 2)
            isSilent.set(false)
            try await stage.restart()
            await stage.advance(1_000)
            #expect(stage.pushes(to: 1).count == 3 && stage.pushes(to: 1)[2].says(#""status":"idle""#))
        }
    }

    // MARK: Who waits is woken

    /// The task sleeps until the next known window. A window that opens earlier must wake it.
    @Test func anEarlierWindowEndsTheSleep() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            try await stage.start(2)
            let asked = stage.now
            // Work is due in 60 s and in 15 s.
            let due = try await stage.ask().due
            await stage.advance(500)
            try await stage.take(.state("idle"))
            await stage.advance(to: asked + Self.window)
            #expect(stage.pushes(to: 2).map(\.at) == [asked, asked + Self.window])
            await stage.advance(to: due - 1)
            #expect(!stage.pushes(to: 1).contains { $0.says("timed_out") })
            await stage.advance(1)
            #expect(stage.pushes(to: 1).last?.at == due)
        }
    }

    @Test func aFailedReadIsRetriedEachSecond() async throws {
        let failures = Mutex(0)
        let fault: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { call in
            guard call == .due else { return .none }
            return failures.withLock { left in
                guard left > 0 else { return .none }
                left -= 1
                return .failed
            }
        }
        try await Stage.play(fault: fault) { stage in
            try await stage.start(1)
            let first = stage.now
            try await stage.take(.state("processing"))
            try await stage.take(.state("idle"))
            await stage.advance(1_000)
            failures.withLock { $0 = 3 }
            await stage.advance(to: first + Self.window + 2_999)
            #expect(stage.pushes(to: 1).count == 1 && failures.withLock { $0 } == 0)
            await stage.advance(1)
            #expect(stage.pushes(to: 1).map(\.at) == [first, first + Self.window + 3_000])
            // An alarm for each line in the log, and one line a minute.
            #expect(await stage.count(.alarms) == 1)
            #expect(stage.simulated.prints.all.filter { $0.hasPrefix("store: ") }.count == 1)
        }
    }

    /// The push leaves once, whether the failed write was done or not.
    @Test(arguments: [FaultyStore.Fault.failed, .doneAndFailed]) func aFailedWriteIsRetried(fault: FaultyStore.Fault)
        async throws
    {
        let failures = Mutex(0)
        let faults: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { call in
            guard call == .apply else { return .none }
            return failures.withLock { left in
                guard left > 0 else { return .none }
                left -= 1
                return fault
            }
        }
        try await Stage.play(fault: faults) { stage in
            try await stage.start(1)
            try await stage.take(.state("processing"))
            try await stage.take(.state("idle"))
            failures.withLock { $0 = 1 }
            await stage.advance(Self.window + 2_000)
            // A job that is stored but reported as failed is sent by the next start.
            try await stage.restart()
            await stage.advance(2_000)
            #expect(stage.pushes(to: 1).filter { $0.says("idle") }.count == 1)
        }
    }
}
