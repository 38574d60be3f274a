import Policy
import Sealing
import Storage
import Testing

@testable import Broker

/// What the operator finds out about a user whom somebody names, without any of it being said.
@Suite struct DrillTests {
    private typealias Stage = CompanionStage

    private func ask(_ stage: CompanionStage, _ principal: Principal) async throws -> [Drill.Finding] {
        let keys = try KeyRing.load(
            path: stage.simulated.folder + "/ratchet.key", longestLifeSeconds: KeyRing.largestLifeSeconds)
        let drill = Drill(
            keys: keys, store: try StoreSnapshot(path: stage.simulated.folder + "/mayfly.sqlite"),
            limits: try Policies([Policy.builtIn("rooms")!]).rooms, now: stage.now)
        return try drill.user(principal.user)
    }

    @Test func aUserIsFoundByName() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            let activity = try await stage.start(3)
            try await stage.register(4, of: Stage.bob)
            let answered = try await stage.ask().request
            #expect(try await stage.respond(answered))
            _ = try await stage.ask()
            _ = try await stage.ask(of: Stage.bob)
            let found = try await ask(stage, Stage.alice)
            #expect(found.map(\.subject) == [.devices, .activities, .approvals])
            #expect(found.map(\.held) == [2, 1, 2] && found.map(\.opens) == [2, 1, 2])
            #expect(found[2].because == "1 pending")
            #expect(found[1].until == Drill.keysGone(activity.expires))
            let other = try await ask(stage, Stage.bob)
            #expect(other.map(\.held) == [1, 0, 1] && other.map(\.opens) == [1, 0, 1])
        }
    }

    /// Sealed on four days and in several hours, and found in each.
    @Test func aUserIsFoundWheneverItRegistered() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...4 {
                try await stage.register(byte)
                await stage.sleep(86_400_000)
            }
            for byte: UInt8 in 5...8 {
                try await stage.start(byte, activity: "activity \(byte)")
                await stage.sleep(3_600_000)
            }
            #expect(try await ask(stage, Stage.alice).map(\.opens) == [4, 4, 0])
            await stage.sleep(12 * 3_600_000)
            #expect(try await ask(stage, Stage.alice).map(\.opens) == [4, 0, 0])
        }
    }

    @Test func whoHasEndedLooksLikeWhoNeverWas() async throws {
        try await Stage.play { stage in
            let registered = try await stage.register(1)
            let stranger = Principal(user: Array("nobody".utf8), isBackEnd: false, expiresMs: .max)
            #expect(try await stage.companion.delete(Stage.alice, registration: registered.id))
            let (gone, never) = (try await ask(stage, Stage.alice), try await ask(stage, stranger))
            #expect(gone == never && gone.map(\.subject) == [.users] && gone[0].held == 0)
            // A back end is no user for having asked.
            _ = try await stage.ask()
            #expect(try await ask(stage, Stage.backEnd) == never)
        }
    }
}
