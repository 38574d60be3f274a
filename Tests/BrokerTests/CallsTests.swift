import Broker
import Courier
import Sealing
import Sodium
import Storage
import Synchronization
import Testing
import Vocabulary

@Suite struct CallsTests {
    private typealias Stage = CallsStage
    private static let day: UInt64 = 86_400_000

    // MARK: Ringing

    @Test func onlyTheReceiversPhonesRing() async throws {
        try await Stage.play { stage in
            let (first, second) = (try await stage.register(1), try await stage.register(2))
            try await stage.register(3, of: Stage.alice)
            #expect(try await stage.ring() == CallReceipt(rang: 2))
            #expect(await stage.pushes().map(\.token).sorted() == [1, 2])
            for (token, registered) in [(UInt8(1), first), (2, second)] {
                let push = try #require(await stage.pushes(to: token).first)
                let session = handle("session", "session", registered)
                #expect(push.collapseID == session)
                #expect(push.says(#""sessionId":"\#(session)""#))
                #expect(push.says(#""callerUid":"\#(handle("uid", "alice", registered))""#))
                #expect(push.says(#""callType":"video""#))
                #expect(!push.says("alice") && !push.says("bob") && !push.says(#""session""#))
            }
        }
    }

    /// Broker time stays ahead then. By Apple's clock the push would be valid for a day more.
    @Test func expiryFollowsTheWallClockAfterItWasSetBack() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            stage.machine.step(Int64(Self.day))
            try await stage.ring("while the clock is ahead")
            stage.machine.step(-Int64(Self.day))
            try await stage.ring("when it is right")
            let push = try #require(await stage.pushes().last)
            #expect((push.at / 1_000 + 28...push.at / 1_000 + 30).contains(try #require(push.expires)))
        }
    }

    @Test func aPushNamesTheMedia() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            for media in CallInvitation.Media.allCases { try await stage.ring("a call by \(media)", media: media) }
            let pushes = await stage.pushes()
            #expect(pushes.count == 2 && pushes.contains { $0.says(#""callType":"audio""#) })
        }
    }

    @Test func aCallRingsOnceInADay() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            #expect(try await stage.ring().rang == 1)
            #expect(try await stage.ring() == CallReceipt(isRepeated: true))
            // Caller and media don't matter.
            #expect(try await stage.ring(from: Stage.backEnd, media: .audio) == CallReceipt(isRepeated: true))
            try await stage.restart()
            #expect(try await stage.ring().isRepeated)
            for _ in 0..<4 {
                await stage.sleep(Self.day / 4 - 1_000)
                #expect(try await stage.ring().isRepeated)
            }
            #expect(await stage.pushes().count == 1)
            // Another session is another call, and so is the same session for another receiver.
            try await stage.register(2, of: Stage.alice)
            #expect(try await stage.ring("another").rang == 1)
            #expect(try await stage.ring(to: Stage.alice).rang == 1)
            #expect(await stage.pushes().count == 3)
            // The call is forgotten after a day and a half.
            await stage.sleep(Self.day * 3 / 2)
            #expect(try await stage.ring().rang == 1)
        }
    }

    @Test func aHundredConcurrentCopiesRingOnce() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let receipts = try await withThrowingTaskGroup(of: CallReceipt.self) { group in
                for _ in 0..<100 { group.addTask { try await stage.ring() } }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(receipts.count { $0 == CallReceipt(rang: 1) } == 1)
            #expect(receipts.count { $0 == CallReceipt(isRepeated: true) } == 99)
            #expect(await stage.pushes().count == 1)
        }
    }

    /// The call rings once, even if the store fails or the broker is killed before or after the call is stored.
    @Test(arguments: [FaultyStore.Fault.killed, .doneAndKilled, .failed, .doneAndFailed])
    func aCallRingsOnceDespiteFaults(_ fault: FaultyStore.Fault) async throws {
        let isArmed = Flag()
        let faults: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { $0 == .apply && isArmed.isSet ? fault : .none }
        try await Stage.play(fault: faults) { stage in
            try await stage.register(1)
            isArmed.set(true)
            switch fault {
            case .failed, .doneAndFailed:
                await #expect(throws: BrokerError.storageUnavailable) { try await stage.ring() }
            default:
                // The caller gets no answer any more.
                let calls = try await stage.calls
                Task {
                    _ = try? await calls.ring(
                        CallInvitation(
                            session: Array("session".utf8), caller: Stage.alice.user, receiver: Stage.bob.user, media: .video))
                }
                // The task may not have begun yet.
                while await !stage.simulated.isDead { await Task.yield() }
                await stage.simulated.settle()
            }
            isArmed.set(false)
            try await stage.restart()
            let again = try await stage.ring()
            #expect(again == CallReceipt(rang: 1) || again == CallReceipt(isRepeated: true))
            #expect(again.isRepeated == (fault == .doneAndKilled || fault == .doneAndFailed))
            #expect(await stage.pushes().count == 1)
        }
    }

    @Test func aCallWithoutPhonesIsNotStored() async throws {
        try await Stage.play { stage in
            let before = try await stage.counts
            #expect(try await stage.ring() == CallReceipt())
            #expect(try await stage.counts == before)
            try await stage.register(1)
            #expect(try await stage.ring().rang == 1)
        }
    }

    @Test func aTokenHasABudgetOfPushes() async throws {
        try await Stage.play(limits: [(#""tokenPushes": { "count": 240"#, #""tokenPushes": { "count": 2"#)]) { stage in
            try await stage.register(1)
            for session in ["one", "two"] { #expect(try await stage.ring(session).rang == 1) }
            // Repeats cost no budget.
            for _ in 0..<3 { #expect(try await stage.ring("two").rang == 0) }
            #expect(try await stage.ring("three") == CallReceipt(throttled: 1))
            // Another user's phone has a budget of its own.
            try await stage.register(2, of: Stage.alice)
            #expect(try await stage.ring("three", to: Stage.alice).rang == 1)
            await stage.simulated.advance(300_000)
            #expect(try await stage.ring("three").rang == 1)
        }
    }

    @Test func anUnregisteredTokenIsDestroyed() async throws {
        let gone = Outcome.failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: nil))
        let outcome: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { push in
            (0, push.address.token.withBytes { $0[0] } == 1 ? gone : .delivered)
        }
        try await Stage.play(outcome: outcome) { stage in
            try await stage.register(1)
            try await stage.register(2)
            #expect(try await stage.ring().rang == 2)
            _ = await stage.pushes()
            #expect(try await stage.ring("another").rang == 1)
            #expect(await stage.pushes().map(\.token).sorted() == [1, 2, 2])
        }
    }

    // MARK: Registrations

    @Test func aUserActsForItselfAndABackEndForAll() async throws {
        try await Stage.play { stage in
            try await stage.register(1, by: Stage.backEnd)
            await #expect(throws: BrokerError.anotherUser) { try await stage.register(2, by: Stage.alice) }
            await #expect(throws: BrokerError.anotherUser) { try await stage.delete(1, by: Stage.alice) }
            await #expect(throws: BrokerError.anotherUser) { try await stage.delete(by: Stage.alice) }
            #expect(try await stage.ring().rang == 1)
            #expect(try await stage.delete(by: Stage.backEnd) == 1)
            #expect(try await stage.ring("another").rang == 0)
        }
    }

    @Test func oneTokenOrAllAreDeleted() async throws {
        try await Stage.play { stage in
            for token in UInt8(1)...4 { try await stage.register(token) }
            // Another user's registration of the same token stays.
            try await stage.register(1, of: Stage.alice)
            #expect(try await stage.delete(1) == 1)
            #expect(try await stage.delete(1) == 0)
            #expect(try await stage.delete(9) == 0)
            #expect(try await stage.ring().rang == 3)
            #expect(try await stage.delete() == 3)
            #expect(try await stage.delete() == 0)
            #expect(try await stage.ring(to: Stage.alice).rang == 1)
        }
    }

    @Test func aRegistrationIsRenewedAndLivesAMonth() async throws {
        try await Stage.play { stage in
            let first = try await stage.register(1)
            #expect(first.expires > stage.machine.wall + 29 * Self.day - 1 && first.expires <= stage.machine.wall + 30 * Self.day)
            let again = try await stage.register(1)
            #expect(again.id == first.id && again.ref == first.ref)
            await stage.sleep(10 * Self.day)
            let later = try await stage.register(1)
            #expect(later.id == first.id && later.expires > first.expires)
            #expect(try await stage.ring().rang == 1)
            await stage.sleep(30 * Self.day)
            #expect(try await stage.ring("another").rang == 0)
        }
    }

    /// Derives a handle like a phone.
    private func handle(_ kind: String, _ name: String, _ registered: Registered) -> String {
        let message = Array("mayfly/v1 handle\(kind)\0\(name)".utf8)
        return registered.handleKey.secret.withBytes { key in
            Base64.url.encode(HMACSHA256.code(message.span, key: key).span.extracting(first: 16))
        }
    }
}
