import Policy
import Sealing
import Storage
import Testing

@testable import Broker

/// What the operator can disclose about apps with accounts, with the key file alone or with a name.
@Suite struct DrillTests {
    private typealias Stage = CompanionStage
    private typealias Row = (held: Int?, opens: Int)

    private func drill(_ broker: SimulatedBroker, _ now: UInt64) throws -> Drill {
        let keys = try KeyRing.load(path: broker.folder + "/ratchet.key", longestLifeSeconds: KeyRing.largestLifeSeconds)
        return Drill(
            keys: keys, store: try StoreSnapshot(.file(broker.folder + "/mayfly.sqlite")),
            limits: try Policies([Policy.builtIn("rooms")!]).rooms, now: now)
    }

    private func ask(_ stage: CompanionStage, _ principal: Principal) throws -> [Drill.Finding] {
        try drill(stage.simulated, stage.now).user(principal.user)
    }

    private func everything(
        _ broker: SimulatedBroker, _ now: UInt64
    ) throws -> [Drill.Finding.Subject: Drill.Finding] {
        Dictionary(uniqueKeysWithValues: try drill(broker, now).everything().map { ($0.subject, $0) })
    }

    private func expect(
        _ found: [Drill.Finding.Subject: Drill.Finding], _ rows: [Drill.Finding.Subject: Row],
        _ location: SourceLocation = #_sourceLocation
    ) {
        for (subject, row) in rows {
            let isSame = found[subject]?.held == row.held && found[subject]?.opens == row.opens
            #expect(isSame, "\(subject): \(String(describing: found[subject]))", sourceLocation: location)
        }
    }

    // MARK: With a user's name

    @Test func aShortageIsReported() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let drill = try drill(stage.simulated, stage.now)
            #expect(try drill.user(Stage.alice.user).map(\.opens).first == 1 && drill.shortage == nil)
            let taken = try TakenSlots(reserve: true)
            _ = try drill.user(Stage.alice.user)
            taken.giveBackAll()
            #expect(drill.shortage != nil)
        }
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
            // Nothing stored has this session's name.
            try await stage.take(.question, session: Array("unnamed".utf8))
            let found = try ask(stage, Stage.alice)
            #expect(found.map(\.subject) == [.devices, .activities, .phones, .monitors, .approvals, .sessions])
            #expect(found.map(\.held) == [2, 1, 0, 0, 2, nil] && found.map(\.opens) == [2, 1, 0, 0, 2, 1])
            #expect(found[4].because == "1 pending")
            #expect(found[1].until == Drill.keysGone(activity.expires))
            let other = try ask(stage, Stage.bob)
            #expect(other.map(\.held) == [1, 0, 0, 0, 1, nil] && other.map(\.opens) == [1, 0, 0, 0, 1, 1])
        }
    }

    /// The registrations were sealed on four days and in several hours.
    @Test func aUserIsFoundInAllPlaces() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...4 {
                try await stage.register(byte)
                await stage.sleep(86_400_000)
            }
            for byte: UInt8 in 5...8 {
                try await stage.start(byte, activity: "activity \(byte)")
                await stage.sleep(3_600_000)
            }
            #expect(try ask(stage, Stage.alice).map(\.opens) == [4, 4, 0, 0, 0, 0])
            await stage.sleep(12 * 3_600_000)
            #expect(try ask(stage, Stage.alice).map(\.opens) == [4, 0, 0, 0, 0, 0])
        }
    }

    @Test func aFormerUserLooksLikeAnUnknownOne() async throws {
        try await Stage.play { stage in
            let registered = try await stage.register(1)
            let stranger = Principal(user: Array("nobody".utf8), isBackEnd: false, expiresMs: .max)
            #expect(try await stage.companion.delete(Stage.alice, registration: registered.id))
            let (gone, never) = (try ask(stage, Stage.alice), try ask(stage, stranger))
            #expect(gone == never && gone.map(\.subject) == [.users] && gone[0].held == 0)
            // Asking for approvals does not make a back end a user.
            _ = try await stage.ask()
            #expect(try ask(stage, Stage.backEnd) == never)
        }
    }

    @Test func aUsersPhonesAreFoundByName() async throws {
        try await CallsStage.play { stage in
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            #expect(try await stage.ring().rang == 2)
            let drill = try drill(stage.simulated, stage.machine.wall)
            #expect(try drill.user(CallsStage.bob.user).map(\.opens) == [0, 0, 2, 0, 0, 0])
            #expect(try drill.user(CallsStage.alice.user).map(\.subject) == [.users])
            let found = try everything(stage.simulated, stage.machine.wall)
            expect(found, [.audienceTokens: (2, 0), .users: (nil, 0), .seen: (1, 0)])
            #expect(found[.audienceTokens]?.because == "each needs its user's or printer's name")
        }
    }

    // MARK: With the key file alone

    /// An approval has its user's name, so the user's tokens and session open. Rows without a known name don't open.
    @Test func openNotesRevealNamesThatOpenTokens() async throws {
        try await Stage.play { stage in
            expect(
                try everything(stage.simulated, stage.now),
                [.audienceTokens: (0, 0), .users: (0, 0), .approvals: (0, 0), .names: (0, 0), .sessions: (0, 0), .seen: (0, 0)])
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            try await stage.register(4, of: Stage.bob)
            try await stage.start(5, of: Stage.bob)
            try await stage.take(.question, of: Stage.bob, eventID: "event")
            expect(
                try everything(stage.simulated, stage.now),
                [.audienceTokens: (4, 0), .users: (nil, 0), .approvals: (0, 0), .names: (1, 1), .sessions: (1, 0), .seen: (1, 0)])
            let due = try await stage.ask().due
            let named = try everything(stage.simulated, stage.now)
            expect(
                named,
                [.audienceTokens: (4, 2), .users: (nil, 1), .approvals: (1, 1), .names: (1, 1), .sessions: (2, 1), .seen: (1, 0)])
            let until = try #require(named[.users]?.until)
            #expect(until == named[.approvals]?.until && until >= due)
            // The same data opens with the user's name.
            #expect(try ask(stage, Stage.alice).map(\.opens) == [2, 0, 0, 0, 1, 1])
            await stage.sleep(until - stage.now + 60_000)
            expect(
                try everything(stage.simulated, stage.now),
                [.audienceTokens: (4, 0), .users: (nil, 0), .approvals: (0, 0), .names: (1, 1), .sessions: (2, 0)])
        }
    }

    @Test func aWaitingUpdateRevealsItsUser() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            try await stage.start(2, of: Stage.bob)
            try await stage.take(.state("processing"))
            expect(try everything(stage.simulated, stage.now), [.audienceTokens: (2, 0), .users: (nil, 0), .names: (2, 2)])
            try await stage.take(.state("idle"))
            expect(
                try everything(stage.simulated, stage.now),
                [.audienceTokens: (2, 1), .users: (nil, 1), .approvals: (0, 0), .sessions: (1, 1)])
        }
    }

    @Test func aTokenIsFoundOnlyIfItOpens() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            try await stage.register(2, of: Stage.bob)
            _ = try await stage.ask()
            // Wait for the pushes, because queued tokens open.
            await stage.advance(1_000)
            func rows(_ byte: UInt8) throws -> [Drill.Finding] {
                try drill(stage.simulated, stage.now).token(DeviceName(token: stage.token(byte)))
            }
            for (byte, opens) in [(UInt8(1), 1), (2, 0), (3, 0)] {
                let row = try #require(try rows(byte).last)
                #expect(row.subject == .audienceTokens && row.held == 2 && row.opens == opens)
            }
            #expect(try rows(2) == rows(3) && rows(2).last?.because == "only its owner recognises this one")
        }
    }

    // MARK: With a printer's prefix

    @Test func aDeviceOpensWithItsPrinter() async throws {
        try await MonitorStage.play { stage in
            try await stage.register(1)
            try await stage.register(2, of: MonitorStage.bob)
            try await stage.register(3, of: MonitorStage.bob, at: nil)
            try await stage.register(4, of: MonitorStage.bob, at: Array("other".utf8))
            try await stage.run()
            let drill = try drill(stage.simulated, stage.now)
            let rows = try drill.printer(MonitorStage.printer)
            #expect(rows.map(\.subject) == [.monitors, .run] && rows.map(\.held) == [2, 1] && rows.map(\.opens) == [2, 1])
            #expect(try drill.printer(Array("other".utf8)).map(\.opens) == [1, 0])
            #expect(try drill.printer(Array("none".utf8)) == drill.printer(MonitorStage.alice.user))
            #expect(try drill.printer(Array("none".utf8)).map(\.held) == [0])

            // The user's name is not enough.
            let (alice, bob) = (try drill.user(MonitorStage.alice.user), try drill.user(MonitorStage.bob.user))
            #expect(alice.map(\.held) == [0, 0, 0, 1, 0, nil] && alice.map(\.opens) == [0, 0, 0, 0, 0, 0])
            #expect(alice[3].because == "each needs its printer's prefix")
            #expect(bob[3].held == 3 && bob[3].opens == 1 && bob[3].because == "those without a printer")
            // A device without a printer needs no name.
            expect(try everything(stage.simulated, stage.now), [.audienceTokens: (4, 1), .users: (nil, 0), .sessions: (1, 0)])
            #expect(try drill.token(DeviceName(token: stage.token(3))).last?.opens == 1)
            #expect(try drill.token(DeviceName(token: stage.token(4))).last?.opens == 0)
        }
    }
}
