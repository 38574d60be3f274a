import Courier
import Ledger
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

/// Several approvals of one session: what its Live Activity and each device show, and how its back end withdraws them.
@Suite struct PendingApprovalsTests {
    private typealias Stage = CompanionStage
    private static let withdrawn: UInt8 = 4

    /// The status and the approval that the Live Activity shows.
    private static func shown(_ stage: Stage, on token: UInt8 = 9) -> (status: String, request: RequestID?)? {
        guard let payload = stage.pushes(to: token).last?.payload else { return nil }
        func text(_ key: String) -> Substring? {
            payload.firstRange(of: "\"\(key)\":\"").map { payload[$0.upperBound...].prefix { $0 != "\"" } }
        }
        return (String(text("status") ?? ""), text("requestId").flatMap { RequestID(base64url: $0) })
    }

    /// The notifications in a phone's Notification Center, by collapse id. The app doesn't run, so it removes none.
    private static func center(_ stage: Stage, of token: UInt8) -> [String: String] {
        var shown: [String: String] = [:]
        for push in stage.pushes(to: token) where push.says(#""alert":"#) {
            let body = push.payload.firstRange(of: #""body":""#).map { push.payload[$0.upperBound...].prefix { $0 != "\"" } }
            shown[push.collapseID ?? "none"] = String(body ?? "")
        }
        return shown
    }

    /// The reasons in the log, after the broker's stop.
    private static func failures(_ stage: Stage) async throws -> [PushReason] {
        await stage.simulated.stop()
        return try await stage.simulated.entries().compactMap { entry in
            if case .pushFailed(_, _, let reason) = entry.op { reason } else { nil }
        }
    }

    private static func withdraw(_ request: RequestID, _ stage: Stage, _ caller: Principal = Stage.backEnd) async throws -> Int? {
        try await stage.companion.clearApproval(caller, request: RequestName(id: request), excluding: nil)
    }

    // MARK: Live Activities

    @Test func theOldestPendingApprovalIsShown() async throws {
        try await Stage.play { stage in
            try await stage.start(9)
            let (first, _) = try await stage.ask()
            await stage.advance(1_000)
            let (second, _) = try await stage.ask()
            await stage.advance(1_000)
            let (third, due) = try await stage.ask()
            #expect(try await stage.respond(second))
            await stage.advance(20_000)
            #expect(try #require(Self.shown(stage)) == ("awaitingApproval", first))
            #expect(try await stage.respond(first))
            await stage.advance(20_000)
            #expect(try #require(Self.shown(stage)) == ("awaitingApproval", third))
            await stage.advance(to: due - 1)
            #expect(try #require(Self.shown(stage)) == ("awaitingApproval", third))
            await stage.advance(20_000)
            #expect(try #require(Self.shown(stage)) == ("processing", nil), "a timeout ends it, too")
        }
    }

    /// Whatever the back end reports meanwhile.
    @Test func eventsDontHideAPendingApproval() async throws {
        try await Stage.play { stage in
            try await stage.start(9)
            let (request, _) = try await stage.ask()
            for event in [CompanionEvent.state("processing"), .progress(SessionProgress(completed: 1, total: 2)), .question] {
                await stage.advance(15_000)
                try await stage.take(event)
                await stage.advance(100)
                #expect(try #require(Self.shown(stage)) == ("awaitingApproval", request), "\(event)")
            }
            await #expect(throws: BrokerError.self) { try await stage.take(.state("my own words")) }
            #expect(try await stage.respond(request))
            await stage.advance(15_000)
            #expect(try #require(Self.shown(stage)) == ("awaitingAnswer", nil), "the last report")
        }
    }

    /// What was reported before the approval is over: its answer puts the session to work.
    @Test(arguments: ["processing", "idle", "awaitingApproval", "awaitingAnswer", "completed", "error"])
    func theLastReportIsShownAfterTheApprovals(state: String) async throws {
        try await Stage.play { stage in
            try await stage.start(9)
            for _ in 0..<2 {
                try await stage.take(.state("error"))
                let (first, _) = try await stage.ask()
                let (second, _) = try await stage.ask()
                #expect(try await stage.respond(first))
                #expect(try await stage.respond(second))
                await stage.advance(20_000)
                #expect(try #require(Self.shown(stage)) == ("processing", nil))
            }
            let (request, due) = try await stage.ask()
            await stage.advance(20_000)
            try await stage.take(.progress(SessionProgress(elapsedSeconds: 1_000)))
            try await stage.take(.state(state))
            try await stage.restart()
            await stage.advance(20_000)
            #expect(Self.shown(stage)?.request == request)
            await stage.advance(to: due + 100)
            // The broker knows that no approval waits.
            #expect(try #require(Self.shown(stage)) == (state == "awaitingApproval" ? "processing" : state, nil))
            #expect((1_000...1_060).contains(stage.pushes(to: 9).last?.number("elapsedSeconds") ?? 0))
        }
    }

    /// The app may start its Live Activity while the approval is pending.
    @Test func aReportBeforeTheActivityIsShownAfterTheApproval() async throws {
        try await Stage.play { stage in
            let (_, due) = try await stage.ask()
            await stage.advance(1_000)
            try await stage.take(.state("idle"))
            try await stage.start(9)
            await stage.advance(to: due + 20_000)
            #expect(try #require(Self.shown(stage)) == ("idle", nil))
        }
    }

    /// A policy may list 256 states, more than the stored code can tell apart.
    @Test func noStateIsShownAsAQuestion() async throws {
        let listed = #""values": ["idle","#
        let more = (7...256).map { #""state\#($0)","# }.joined(separator: " ")
        try await Stage.play(limits: [(listed, #""values": [\#(more) "idle","#)]) { stage in
            try await stage.start(9)
            for (state, shown) in [("awaitingAnswer", "awaitingAnswer"), ("completed", "processing"), ("error", "processing")] {
                let (request, _) = try await stage.ask()
                await stage.advance(20_000)
                try await stage.take(.state(state))
                #expect(try await stage.respond(request))
                await stage.advance(20_000)
                #expect(try #require(Self.shown(stage)) == (shown, nil))
            }
        }
    }

    /// An approval that isn't shown costs no update of the hourly budget.
    @Test func anEndThatIsNotShownUpdatesNothing() async throws {
        try await Stage.play { stage in
            try await stage.start(9)
            let (first, _) = try await stage.ask()
            await stage.advance(1)
            let (second, _) = try await stage.ask()
            await stage.advance(30_000)
            let before = stage.pushes(to: 9).count
            #expect(try await stage.respond(second))
            await stage.advance(20_000)
            #expect(stage.pushes(to: 9).count == before)
            #expect(Self.shown(stage)?.request == first)
        }
    }

    @Test func anotherSessionsApprovalIsNotShown() async throws {
        try await Stage.play { stage in
            try await stage.start(9)
            try await stage.start(8, activity: "other", session: [1])
            try await stage.start(7, of: Stage.bob)
            let (request, _) = try await stage.ask()
            try await stage.take(.state("idle"), session: [1])
            try await stage.take(.state("idle"), of: Stage.bob)
            await stage.advance(100)
            #expect(Self.shown(stage, on: 9)?.request == request)
            #expect(Self.shown(stage, on: 8)?.status == "idle" && Self.shown(stage, on: 7)?.status == "idle")
        }
    }

    /// Random approvals, answers, withdrawals, timeouts and events, on a clock with steps of three seconds.
    @Test(arguments: 1...6 as ClosedRange<UInt64>) func theActivityAlwaysShowsTheOldestPending(seed: UInt64) async throws {
        let window = [(old: #""activityUpdateSeconds": 15"#, new: #""activityUpdateSeconds": 1"#)]
        try await Stage.play(limits: window) { stage in
            var state = seed &* 0x9e37_79b9_7f4a_7c15
            func draw(_ count: Int) -> Int {
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                return Int(state >> 33) % count
            }
            try await stage.start(9)
            var asked: [RequestID] = []
            for step in 0..<120 {
                switch draw(7) {
                case 0, 1: asked.append(try await stage.ask().request)
                case 2, 3: if !asked.isEmpty { _ = try await stage.respond(asked[draw(asked.count)], approved: draw(2) == 0) }
                case 4: if !asked.isEmpty { _ = try await Self.withdraw(asked[draw(asked.count)], stage) }
                case 5: try await stage.take(.progress(SessionProgress(completed: 1, total: 2)))
                default: if draw(20) == 0 { try await stage.restart() }
                }
                await stage.advance(2_500)
                var oldest: RequestID?
                for request in asked where oldest == nil { if try await stage.state(request) == .pending { oldest = request } }
                #expect(Self.shown(stage)?.request == oldest, "seed \(seed), step \(step)")
                await stage.advance(500)
            }
        }
    }

    /// Two answers read the same state. The second one notices.
    @Test func concurrentAnswersLeaveNothingShown() async throws {
        try await Stage.play { stage in
            try await stage.start(9)
            var requests: [RequestID] = []
            for _ in 0..<6 { requests.append(try await stage.ask().request) }
            let answers = requests.shuffled().map { request in
                Task(executorPreference: stage.simulated.loop) { try await stage.respond(request) }
            }
            for answer in answers { #expect(try await answer.value) }
            await stage.advance(20_000)
            #expect(try #require(Self.shown(stage)) == ("processing", nil))
        }
    }

    // MARK: What clears

    /// By the push's collapse id, without the app.
    @Test func aClearingPushReplacesOnlyItsApproval() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...3 { try await stage.register(byte) }
            let (answered, _) = try await stage.ask()
            let (open, _) = try await stage.ask()
            try await stage.take(.question)
            await stage.advance(100)
            let before = Self.center(stage, of: 1)
            #expect(before.count == 3)
            #expect(try await stage.respond(answered, from: 2))
            await stage.advance(100)
            for byte: UInt8 in [1, 3] {
                var after = before
                after[answered.base64url] = "Answered elsewhere"
                #expect(Self.center(stage, of: byte) == after)
            }
            #expect(Self.center(stage, of: 2) == before, "its own app has removed it")
            await stage.advance(60_000)
            #expect((1...3).allSatisfy { Self.center(stage, of: $0)[open.base64url] == "No longer needed" })
            for push in stage.sightings where push.says(#""type":"clear_"#) {
                #expect(!push.says("badge") && !push.says("sound") && push.says(#""content-available":1"#))
                #expect(push.says(#""interruption-level":"passive""#))
            }
        }
    }

    /// The phone that answers gets no clearing push. So its own push must not follow, even if the broker dies before Apple's answer.
    @Test func anEndedApprovalIsNotPushedAfterARestart() async throws {
        let isSilent = Flag(true)
        let outcome: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (isSilent.isSet ? 600_000 : 0, .delivered) }
        try await Stage.play(outcome: outcome) { stage in
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            let (request, _) = try await stage.ask()
            await stage.advance(1_000)
            #expect(try await stage.respond(request, from: 1))
            isSilent.set(false)
            try await stage.restart()
            await stage.advance(5_000)
            #expect(stage.pushes(to: 1).count == 1, "the attempt before the answer")
            #expect(Self.center(stage, of: 2) == [request.base64url: "Answered elsewhere"])
            #expect(try await Self.failures(stage) == [.unknown, .unknown], "the previous run may have sent them")
        }
    }

    /// An attempt that fails after the answer is not repeated. Another node hears of it with the news for its sockets.
    @Test func anEndedApprovalIsNotTriedAgain() async throws {
        let outcome: @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in
            (2_000, .failed(status: 503, reason: .serviceUnavailable, verdict: .keep))
        }
        try await Stage.play(outcome: outcome) { stage in
            try await stage.register(1)
            let (request, _) = try await stage.ask()
            await stage.advance(1_000)
            #expect(try await stage.respond(request, from: 1))
            await stage.advance(5_000)
            #expect(await stage.count(.pushesFailed) == 0, "it was no longer wanted")
            #expect(try await Self.failures(stage) == [.unsent])
        }
    }

    // MARK: Withdrawing

    @Test(arguments: [false, true]) func aBackEndWithdrawsItsApproval(isRestarted: Bool) async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            try await stage.start(9)
            let (request, due) = try await stage.ask()
            await stage.advance(100)
            let others = [
                Stage.bob, Principal(user: Array("other back end".utf8), isBackEnd: true, expiresMs: .max),
                Principal(user: Stage.backEnd.user, isBackEnd: false, expiresMs: .max),
            ]
            for other in others { #expect(try await Self.withdraw(request, stage, other) == nil) }
            #expect(try await Self.withdraw(request, stage) == 2)
            await stage.advance(1_000)
            #expect(try await stage.state(request)?.rawValue == Self.withdrawn)
            #expect(stage.told(Stage.backEnd).count == 1 && stage.ends(Stage.alice).count == 1)
            // Again: nothing happens, and nothing is written.
            let jobs = try await stage.counts.waitingEntries
            #expect(try await Self.withdraw(request, stage) == 0)
            #expect(try await !stage.respond(request))
            #expect(try await stage.counts.waitingEntries == jobs)
            if isRestarted { try await stage.restart() }
            await stage.advance(to: due + 20_000)
            for byte: UInt8 in 1...2 {
                #expect(stage.pushes(to: byte).count == 2)
                #expect(Self.center(stage, of: byte) == [request.base64url: "No longer needed"])
                #expect(stage.pushes(to: byte).last?.says(#""reason":"withdrawn""#) == true)
            }
            #expect(try #require(Self.shown(stage)) == ("processing", nil))
            #expect(stage.told(Stage.backEnd).count == 1)
        }
    }

    @Test func anAnswerComesBeforeAWithdrawal() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            let (answered, _) = try await stage.ask()
            let (late, due) = try await stage.ask()
            #expect(try await stage.respond(answered, from: 1))
            #expect(try await Self.withdraw(answered, stage) == 0)
            #expect(try await stage.state(answered) == .approved)
            await stage.advance(to: due + 100)
            #expect(try await Self.withdraw(late, stage) == 0)
            #expect(try await stage.state(late) == .timedOut)
            #expect(stage.pushes(to: 1).count == 3 && stage.pushes(to: 2).count == 4)
        }
    }

    @Test func anAnswerAndAWithdrawalAtOnce() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            for _ in 0..<20 {
                let (request, _) = try await stage.ask()
                let answer = Task(executorPreference: stage.simulated.loop) { try await stage.respond(request) }
                let count = Task(executorPreference: stage.simulated.loop) { try await Self.withdraw(request, stage) }
                let (isAnswered, devices) = (try await answer.value, try await count.value)
                #expect(devices == (isAnswered ? 0 : 1))
                #expect(try await stage.state(request)?.rawValue == (isAnswered ? 1 : Self.withdrawn))
            }
        }
    }

    @Test func aBackEndEndsASessionWithItsApprovals() async throws {
        let otherBackEnd = Principal(user: Array("other back end".utf8), isBackEnd: true, expiresMs: .max)
        try await Stage.play { stage in
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            try await stage.start(9)
            var ended: [RequestID] = []
            for _ in 0..<2 { ended.append(try await stage.ask().request) }
            let kept = [
                try await stage.take(.approvalRequest, session: [1]).request,
                try await stage.take(.approvalRequest, from: otherBackEnd).request,
            ]
            await stage.advance(100)
            #expect(
                try await stage.companion.clearSession(Stage.backEnd, session: Stage.session) == 3,
                "two devices and a Live Activity")
            await stage.advance(100)
            for request in ended {
                #expect(try await stage.state(request)?.rawValue == Self.withdrawn)
                #expect(Self.center(stage, of: 1)[request.base64url] == "No longer needed")
            }
            #expect(try await stage.state(#require(kept[0])) == .pending)
            #expect(try await stage.state(#require(kept[1]), Stage.alice) == .pending)
            #expect(stage.pushes(to: 9).last?.says(#""event":"end""#) == true)
            #expect(stage.pushes(to: 1).last?.says("clear_session") == true)
            #expect(stage.told(Stage.backEnd).count == 2)
        }
    }

    /// A user who has pending approvals of the same session name is not hit by a call that names nobody.
    @Test func aBackEndNamesTheUserIfThereAreTwo() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            await #expect(throws: BrokerError.missingField("userId")) {
                try await stage.companion.clearSession(Stage.backEnd, session: Stage.session)
            }
            let (own, _) = try await stage.ask()
            let (others, _) = try await stage.ask(of: Stage.bob)
            await #expect(throws: BrokerError.missingField("userId")) {
                try await stage.companion.clearSession(Stage.backEnd, session: Stage.session)
            }
            await #expect(throws: BrokerError.anotherUser) {
                try await stage.companion.clearSession(Stage.bob, of: Stage.alice.user, session: Stage.session)
            }
            #expect(try await stage.companion.clearSession(Stage.backEnd, of: Stage.alice.user, session: Stage.session) == 1)
            #expect(try await stage.state(own)?.rawValue == Self.withdrawn)
            #expect(try await stage.state(others) == .pending)
        }
    }

    /// Their names are equal, but one of them has the back end's scope.
    @Test func aUserNamedLikeABackEndIsNotTheBackEnd() async throws {
        let namesake = Principal(user: Stage.backEnd.user, isBackEnd: false, expiresMs: .max)
        try await Stage.play { stage in
            try await stage.register(1)
            let own = try await stage.take(.approvalRequest, of: namesake, ownID: "approval", from: namesake).request
            let asked = try await stage.take(.approvalRequest, ownID: "approval").request
            let (users, backEnds) = (try #require(own), try #require(asked))
            let named = RequestName(own: Array("approval".utf8))
            // By the broker's id and by their own id of the same name.
            _ = try await Self.withdraw(users, stage)
            #expect(try await stage.companion.clearApproval(Stage.backEnd, request: named, excluding: nil) == 1)
            #expect(try await stage.state(users, namesake) == .pending)
            #expect(try await stage.state(backEnds)?.rawValue == Self.withdrawn)
            try await stage.take(.approvalRequest)
            #expect(try await stage.companion.clearSession(Stage.backEnd, session: Stage.session) == 1, "one user: Alice")
            let before = stage.ends(namesake).count
            #expect(try await stage.respond(users, namesake))
            #expect(stage.ends(namesake).count == before + 1, "a back end was told of a user's own approval")
        }
    }

    /// A user clears the screen, but the question stays open.
    @Test func aUsersClearingLeavesApprovalsPending() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let (request, _) = try await stage.ask()
            #expect(try await stage.companion.clearSession(Stage.alice, session: Stage.session) == 1)
            #expect(try await Self.withdraw(request, stage, Stage.alice) == 1)
            #expect(try await stage.state(request) == .pending)
        }
    }
}
