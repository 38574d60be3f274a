import Policy
import Sealing
import Storage
import Testing
import Vocabulary

@testable import Broker

/// Tokens of an app with accounts: their owners, and the parts that survive a renewal.
@Suite struct RegistrationTests {
    private typealias Stage = CompanionStage

    @Test func aRepeatedRegistrationChangesNothing() async throws {
        try await Stage.play { stage in
            let first = try await stage.register(1)
            let again = try await stage.register(1)
            #expect(again.id == first.id && again.ref == first.ref && again.expires == first.expires)
            #expect(again.handleKey.secret == first.handleKey.secret)
            #expect(try await stage.counts.registrations == 1)
            let other = try await stage.register(2)
            #expect(other.id != first.id && other.handleKey.secret != first.handleKey.secret)
        }
    }

    /// The lost keys had a later generation than the new ones. When the broker looks for the slots of registrations, their rows are still there.
    @Test func registrationsGoOnAfterLostKeys() async throws {
        try await Stage.play { stage in
            for _ in 0..<3 {
                try await stage.register(1)
                await stage.sleep(86_400_000)
            }
            await stage.simulated.stop()
            try await stage.simulated.renewKeys()
            try await stage.start()
            #expect(try await stage.counts.registrations == 0)
            try await stage.register(1)
            #expect(try await stage.companion.status(Stage.alice).hasDevice)
            _ = try await stage.ask()
            await stage.advance(1_000)
            #expect(stage.pushes(to: 1).count == 1)
        }
    }

    /// A step of a device's place is a day, like a generation of keys. A step of a Live Activity's place is an hour.
    @Test func aRenewalKeepsIDAndHandleKey() async throws {
        try await Stage.play { stage in
            let device = try await stage.register(1)
            var activity = try await stage.start(2)
            for _ in 0..<3 {
                await stage.sleep(3_600_000)
                let renewed = try await stage.start(2)
                #expect(renewed.id == activity.id && renewed.handleKey.secret == activity.handleKey.secret)
                #expect(renewed.ref != activity.ref && renewed.expires == activity.expires + 3_600_000)
                activity = renewed
            }
            var last = device
            for day in 1...3 {
                await stage.sleep(86_400_000)
                let renewed = try await stage.register(1)
                #expect(renewed.id == device.id && renewed.handleKey.secret == device.handleKey.secret, "after \(day) days")
                #expect(renewed.ref != last.ref && renewed.expires > last.expires + 80_000_000)
                last = renewed
            }
            // The Live Activity has expired long ago.
            #expect(try await stage.counts.registrations == 1)
            let status = try await stage.companion.status(Stage.alice)
            #expect(status.hasDevice && status.activities.isEmpty)
        }
    }

    @Test func aRegistrationEndsAtItsExpiry() async throws {
        try await Stage.play { stage in
            let activity = try await stage.start(2)
            await stage.sleep(activity.expires - stage.now - 1)
            #expect(try await stage.companion.status(Stage.alice).activities.count == 1)
            await stage.advance(to: activity.expires)
            #expect(try await stage.companion.status(Stage.alice).activities.isEmpty)
            #expect(try await stage.take(.state("idle")).pushes == 0)
        }
    }

    @Test func oneTokenOfTwoOwnersIsTwoRegistrations() async throws {
        try await Stage.play { stage in
            let (own, others) = (try await stage.register(1), try await stage.register(1, of: Stage.bob))
            #expect(own.id != others.id && own.handleKey.secret != others.handleKey.secret)
            #expect(try await stage.counts.registrations == 2)
            // No owner sees, renews or deletes another owner's registration.
            #expect(try await !stage.companion.delete(Stage.bob, registration: own.id))
            #expect(try await stage.companion.delete(Stage.bob, registration: others.id))
            #expect(try await !stage.companion.delete(Stage.bob, registration: others.id))
            #expect(try await stage.register(1).id == own.id)
            #expect(try await stage.take(.question).pushes == 1)
            #expect(try await stage.take(.question, of: Stage.bob).pushes == 0)
        }
    }

    @Test func oneTokenAsADeviceAndAsAnActivityIsTwoRegistrations() async throws {
        try await Stage.play { stage in
            let (device, activity) = (try await stage.register(1), try await stage.start(1))
            #expect(device.id != activity.id)
            #expect(try await stage.counts.registrations == 2)
            #expect(try await stage.register(1).id == device.id)
            #expect(try await stage.start(1).id == activity.id)
            // The answering device gets no push. A Live Activity with the same token does not matter.
            let request = try await stage.ask().request
            #expect(try await stage.respond(request, from: 1))
            await stage.advance(20_000)
            #expect(stage.pushes(to: 1).filter { $0.says("clear_approval") }.isEmpty)
        }
    }

    /// Indexes and seals of one name differ between kinds of apps.
    @Test func kindsOfAppsHaveSeparateNames() async throws {
        try await Stage.play { stage in
            let keys = try #require(await stage.simulated.run?.keys)
            let place = keys.expirySlot(lifeMs: 3_600_000, stepMs: 3_600_000, nowMs: stage.now)
            for label in [AudienceLabel.owner, .audience, .session, .seen, .activeClient] {
                let indexes = try Policy.Kind.allCases.map { try keys.index(label, place, $0, [Stage.alice.user]) }
                #expect(Set(indexes).count == Policy.Kind.allCases.count, "\(label)")
            }
            #expect(Set(Policy.Kind.allCases.map { $0.field(Stage.alice.user) }).count == Policy.Kind.allCases.count)
        }
    }

    @Test func aPreviousTokenIsReplacedForItsOwnerOnly() async throws {
        try await Stage.play { stage in
            let others = try await stage.start(1, of: Stage.bob)
            let own = try await stage.start(2, previous: 1)
            #expect(own.id != others.id)
            #expect(try await stage.counts.registrations == 2)
            let next = try await stage.start(3, previous: 2)
            #expect(next.id == own.id && next.handleKey.secret == own.handleKey.secret && next.ref != own.ref)
            #expect(try await stage.counts.registrations == 2)
            // The token was replaced, so a registration that names it again is new.
            #expect(try await stage.start(4, previous: 2).id != own.id)
            #expect(try await stage.start(1, of: Stage.bob).id == others.id)
        }
    }

    @Test func anActivityDoesNotReplaceADevice() async throws {
        try await Stage.play { stage in
            let device = try await stage.register(1)
            #expect(try await stage.start(2, previous: 1).id != device.id)
            #expect(try await stage.companion.status(Stage.alice).hasDevice)
        }
    }

    @Test func anOwnersRegistrationsAreLimited() async throws {
        let limits = [
            (old: #""registrationsPerOwner": 100"#, new: #""registrationsPerOwner": 3"#),
            (old: #""activitiesPerOwner": 100"#, new: #""activitiesPerOwner": 2"#),
        ]
        try await Stage.play(limits: limits) { stage in
            for byte: UInt8 in 1...3 { try await stage.register(byte) }
            await #expect(throws: BrokerError.tooManyRegistrations(limit: 3)) { try await stage.register(4) }
            for byte: UInt8 in 5...6 { try await stage.start(byte) }
            await #expect(throws: BrokerError.tooManyRegistrations(limit: 2)) { try await stage.start(7) }
            // Registrations may still be renewed and replaced. Other owners have limits of their own.
            try await stage.register(2)
            try await stage.start(7, previous: 5)
            try await stage.register(1, of: Stage.bob)
            await stage.sleep(86_400_000)
            try await stage.register(3)
            await #expect(throws: BrokerError.tooManyRegistrations(limit: 3)) { try await stage.register(4) }
            // A deletion makes room again.
            #expect(try await stage.companion.delete(Stage.alice, registration: stage.register(1).id))
            try await stage.register(4)
        }
    }

    /// Each replaces another one, so each must succeed within its retries.
    @Test func concurrentRegistrationsOfOneTokenAreOneRow() async throws {
        try await Stage.play { stage in
            let calls = (0..<12).map { number in
                Task(executorPreference: stage.simulated.loop) { try await stage.start(1, activity: "activity \(number)") }
            }
            var ids: Set<RegistrationID> = []
            for call in calls { ids.insert(try await call.value.id) }
            #expect(ids.count == 1)
            #expect(try await stage.counts.registrations == 1)
            #expect(try await stage.companion.status(Stage.alice).activities.count == 1)
        }
    }

    @Test func anOwnersWaitingRegistrationsAreLimited() async throws {
        try await Stage.play { stage in
            let (audiences, most) = (try await stage.companion.audiences, Audiences.maxRegistering)
            let (alice, bob) = (Array("alice".utf8), Array("bob".utf8))
            try await audiences.beginRegistering(alice)
            let waiting = (0..<most).map { _ in
                Task(executorPreference: stage.simulated.loop) {
                    try await audiences.beginRegistering(alice)
                    await audiences.endRegistering(alice)
                }
            }
            while await audiences.waitingRegistrations(of: alice) < most { await Task.yield() }
            await #expect(throws: BrokerError.tooManyRequests(retryAfterSeconds: 1)) {
                try await audiences.beginRegistering(alice)
            }
            try await audiences.beginRegistering(bob)
            await audiences.endRegistering(bob)
            await audiences.endRegistering(alice)
            for call in waiting { try await call.value }
            #expect(await audiences.waitingRegistrations(of: alice) == 0)
        }
    }
}
