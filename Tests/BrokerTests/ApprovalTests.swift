import Broker
import Sealing
import Storage
import Synchronization
import Testing

/// An approval has one answer or a timeout. Then all other devices remove its notification.
@Suite struct ApprovalTests {
    private typealias Stage = CompanionStage

    /// The clock decides whether it is too late, not the task that handles timeouts.
    @Test func anApprovalCanBeAnsweredUntilItsTimeout() async throws {
        let isBlind = Flag()
        let fault: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { call in
            call == .due && isBlind.isSet ? .failed : .none
        }
        try await Stage.play(fault: fault) { stage in
            isBlind.set(true)
            let asked = stage.now
            let (first, second) = (try await stage.ask(), try await stage.ask())
            #expect(first.due == asked + 60_000)
            await stage.advance(to: first.due - 1)
            #expect(try await stage.state(first.request) == .pending)
            #expect(try await stage.respond(first.request))
            await stage.advance(1)
            #expect(try await stage.state(second.request) == .timedOut, "nobody has come round to say so")
            #expect(try await !stage.respond(second.request))
            #expect(try await stage.state(first.request) == .approved)
            isBlind.set(false)
            await stage.advance(2_000)
            #expect(stage.told(Stage.backEnd).count == 2)
        }
    }

    @Test func anApprovalIsAnsweredOnce() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...3 { try await stage.register(byte) }
            let request = try await stage.ask().request
            let answers = [true, false, true, false].enumerated().map { number, approved in
                Task(executorPreference: stage.simulated.loop) {
                    try await stage.respond(request, approved: approved, from: UInt8(1 + number % 3)) ? approved : nil
                }
            }
            var taken: [Bool] = []
            for answer in answers { if let answer = try await answer.value { taken.append(answer) } }
            #expect(taken.count == 1)
            #expect(try await stage.state(request) == (taken == [true] ? .approved : .denied))
            #expect(try await !stage.respond(request))
            await stage.advance(120_000)
            // The two devices that did not answer clear it once, and no timeout follows.
            #expect(stage.sightings.filter { $0.says("clear_approval") }.count == 2)
            let message = CompanionMessage.approvalResponse(request: request, session: Stage.session, approved: taken[0])
            #expect(stage.told(Stage.backEnd) == [message] && stage.ends(Stage.alice) == [message])
        }
    }

    @Test func theAnsweringDeviceGetsNoClearingPush() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...3 { try await stage.register(byte) }
            try await stage.register(2, of: Stage.bob)
            #expect(try await stage.respond(stage.ask().request, from: 2))
            await stage.advance(100)
            #expect((1...3).map { byte in stage.pushes(to: byte).filter { $0.says("clear_approval") }.count } == [1, 0, 1])
            // A token of nobody excludes no device.
            #expect(try await stage.respond(stage.ask().request, from: 9))
            await stage.advance(100)
            #expect((1...3).map { byte in stage.pushes(to: byte).filter { $0.says("clear_approval") }.count } == [2, 1, 2])
            let request = try await stage.ask().request
            let told = try await stage.companion.clearApproval(
                Stage.alice, request: RequestName(id: request), excluding: stage.token(1))
            #expect(told == 2)
            #expect(try await stage.state(request) == .pending, "clearing is no answer")
        }
    }

    @Test func anApprovalBelongsToItsUserAndItsBackEnd() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let request = try await stage.ask().request
            let otherBackEnd = Principal(user: Array("other back end".utf8), isBackEnd: true, expiresMs: .max)
            // Its name without its scope.
            let namesake = Principal(user: Stage.backEnd.user, isBackEnd: false, expiresMs: .max)
            for stranger in [Stage.bob, otherBackEnd, namesake] {
                #expect(try await stage.state(request, stranger) == nil)
                #expect(try await !stage.respond(request, stranger))
                #expect(
                    try await stage.companion.clearApproval(stranger, request: RequestName(id: request), excluding: nil) == nil)
            }
            // The back end that asked may read the answer, but can't answer.
            #expect(try await stage.state(request) == .pending)
            #expect(try await !stage.respond(request, Stage.backEnd))
            #expect(try await stage.state(request, Stage.alice) == .pending)
            #expect(try await stage.respond(request, approved: false))
            #expect(try await stage.state(request) == .denied)
            #expect(stage.told(otherBackEnd).isEmpty && stage.told(Stage.bob).isEmpty)
        }
    }

    @Test func aUserActsForItselfOnly() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            for event in [CompanionEvent.approvalRequest, .question, .complete(success: true), .state("idle")] {
                await #expect(throws: BrokerError.anotherUser) { try await stage.take(event, from: Stage.bob) }
            }
            await #expect(throws: BrokerError.anotherUser) {
                try await stage.companion.claim(
                    Stage.bob, of: Stage.alice.user, session: Stage.session, device: [1], type: .ios, token: nil)
            }
            await #expect(throws: BrokerError.missingField("userId")) {
                try await stage.companion.take(.question, of: nil, session: Stage.session, eventID: nil, from: Stage.backEnd)
            }
            await stage.advance(100)
            #expect(stage.sightings.isEmpty)
            #expect(try await stage.take(.question, from: Stage.alice).pushes == 1)
        }
    }

    @Test func anAnswerIsKeptForTenMinutes() async throws {
        try await Stage.play { stage in
            let (request, due) = try await stage.ask()
            #expect(try await stage.respond(request))
            await stage.advance(to: due + 599_999)
            #expect(try await stage.state(request) == .approved)
            await stage.advance(1)
            #expect(try await stage.state(request) == nil)
        }
    }

    // MARK: A back end's own ids

    /// Beside the broker's, and after a restart.
    @Test func aBackEndsOwnIDNamesTheApproval() async throws {
        try await Stage.play { stage in
            for byte: UInt8 in 1...2 { try await stage.register(byte) }
            let own = RequestName(own: Array("approval-1".utf8))
            let receipt = try await stage.take(.approvalRequest, ownID: "approval-1")
            let request = try #require(receipt.request)
            #expect(try await stage.companion.clearApproval(Stage.alice, request: own, excluding: stage.token(1)) == 1)
            #expect(try await stage.companion.approval(Stage.alice, request: own)?.state == .pending)
            #expect(try await stage.companion.approval(Stage.backEnd, request: own)?.state == .pending)
            try await stage.restart()
            // Keys and places have stepped.
            await stage.advance(50_000)
            #expect(try await stage.companion.respond(Stage.alice, request: own, approved: true, excluding: nil))
            #expect(try await stage.state(request) == .approved)
            #expect(try await !stage.companion.respond(Stage.alice, request: own, approved: true, excluding: nil))
            let message = CompanionMessage.approvalResponse(request: request, session: Stage.session, approved: true)
            #expect(stage.ends(Stage.alice) == [message], "news name it as pushes do")
        }
    }

    @Test func anOwnIDBelongsToItsUserAndItsBackEnd() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let own = RequestName(own: Array("approval-1".utf8))
            try await stage.take(.approvalRequest, ownID: "approval-1")
            let otherBackEnd = Principal(user: Array("other back end".utf8), isBackEnd: true, expiresMs: .max)
            let namesake = Principal(user: Stage.backEnd.user, isBackEnd: false, expiresMs: .max)
            for stranger in [Stage.bob, otherBackEnd, namesake] {
                #expect(try await stage.companion.approval(stranger, request: own) == nil)
                #expect(try await !stage.companion.respond(stranger, request: own, approved: true, excluding: nil))
                #expect(try await stage.companion.clearApproval(stranger, request: own, excluding: nil) == nil)
            }
            #expect(try await !stage.companion.respond(Stage.backEnd, request: own, approved: true, excluding: nil))
            // The same name of another user is another approval.
            let others = try await stage.take(.approvalRequest, of: Stage.bob, ownID: "approval-1")
            #expect(try await stage.companion.respond(Stage.bob, request: own, approved: false, excluding: nil))
            #expect(try await stage.state(#require(others.request)) == .denied)
            #expect(try await stage.companion.approval(Stage.alice, request: own)?.state == .pending)
        }
    }

    /// The own id lives as long as the approval's answer, also if the approval began at the end of an epoch.
    @Test func anOwnIDLivesAsLongAsTheAnswer() async throws {
        try await Stage.play { stage in
            await stage.advance(299_000)
            let own = RequestName(own: Array("approval-1".utf8))
            let due = try #require(try await stage.take(.approvalRequest, ownID: "approval-1").expires)
            #expect(try await stage.companion.respond(Stage.alice, request: own, approved: true, excluding: nil))
            await stage.advance(to: due + 599_999)
            #expect(try await stage.companion.approval(Stage.alice, request: own)?.state == .approved)
            await stage.advance(1)
            #expect(try await stage.companion.approval(Stage.alice, request: own) == nil)
            await stage.advance(1_000)
            #expect(try await stage.counts.timers == 0)
        }
    }

    @Test func anOwnIDNamesTheNewestApproval() async throws {
        try await Stage.play { stage in
            let first = try await stage.take(.approvalRequest, ownID: "1")
            await stage.advance(1_000)
            let second = try await stage.take(.approvalRequest, ownID: "1")
            let own = RequestName(own: Array("1".utf8))
            #expect(try await stage.companion.respond(Stage.alice, request: own, approved: true, excluding: nil))
            #expect(try await stage.state(#require(second.request)) == .approved)
            #expect(try await stage.state(#require(first.request)) == .pending)
        }
    }

    /// A question has no answer here, and never times out.
    @Test func aQuestionIsClearedByItsOwnID() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let own = RequestName(own: Array("question-1".utf8))
            let question = try #require(try await stage.take(.question, ownID: "question-1").request)
            #expect(try await stage.companion.clearApproval(Stage.bob, request: own, excluding: nil) == nil)
            #expect(try await stage.companion.clearApproval(Stage.alice, request: own, excluding: nil) == 1)
            #expect(try await !stage.companion.respond(Stage.alice, request: own, approved: true, excluding: nil))
            #expect(try await stage.companion.approval(Stage.alice, request: own) == nil)
            #expect(try await stage.state(question) == nil)
            await stage.advance(120_000)
            #expect(stage.pushes(to: 1).count == 2 && stage.pushes(to: 1).last?.says("clear_approval") == true)
            #expect(stage.told(Stage.backEnd).isEmpty)
            // A question without one leaves no row.
            let counts = try await stage.counts.timers
            try await stage.take(.question)
            #expect(try await stage.counts.timers == counts)
        }
    }

    // MARK: Time-outs and restarts

    @Test func aTimeoutIsReportedOnceAcrossRestarts() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            try await stage.register(2)
            let (request, due) = try await stage.ask()
            await stage.advance(to: due - 1)
            await stage.simulated.kill()
            stage.machine.pass(30_000)
            try await stage.start()
            await stage.advance(2_000)
            for byte: UInt8 in 1...2 { #expect(stage.pushes(to: byte).filter { $0.says("timed_out") }.count == 1) }
            let message = CompanionMessage.approvalTimeout(request: request, session: Stage.session)
            #expect(stage.told(Stage.backEnd) == [message] && stage.ends(Stage.alice) == [message])
            #expect(try await stage.state(request) == .timedOut)
            #expect(try await !stage.respond(request))
            try await stage.restart()
            await stage.advance(60_000)
            #expect(stage.sightings.filter { $0.says("timed_out") }.count == 2)
            #expect(stage.told(Stage.backEnd).count == 1)
        }
    }

    /// This holds even after its state can't be read any more. Otherwise devices would show the approval for ever.
    @Test func aTimeoutIsReportedWhileItsNoteOpens() async throws {
        // Keys of the time at which the note expires, eleven minutes from now, live until 19 min 50 s from now.
        for (absence, isTold) in [(UInt64(1_150_000), true), (1_250_000, false)] {
            try await Stage.play { stage in
                try await stage.register(1)
                let request = try await stage.ask().request
                await stage.simulated.kill()
                stage.machine.pass(absence)
                try await stage.start()
                await stage.advance(2_000)
                #expect(stage.pushes(to: 1).filter { $0.says("timed_out") }.count == (isTold ? 1 : 0), "after \(absence) ms")
                let message = CompanionMessage.approvalTimeout(request: request, session: Stage.session)
                #expect(stage.told(Stage.backEnd) == (isTold ? [message] : []))
                #expect(try await stage.state(request) == nil)
                await stage.advance(60_000)
                #expect(try await stage.counts.timers == 0)
            }
        }
    }

    @Test func anAnswerSurvivesARestart() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            let (request, due) = try await stage.ask()
            #expect(try await stage.respond(request))
            try await stage.restart()
            await stage.advance(to: due + 1_000)
            #expect(try await stage.state(request) == .approved)
            #expect(!stage.sightings.contains { $0.says("timed_out") })
            #expect(stage.sightings.filter { $0.says("clear_approval") }.count == 1, "its push was durable")
        }
    }

    @Test func manyApprovalsTimeOutAtOnce() async throws {
        try await Stage.play { stage in
            try await stage.register(1)
            for _ in 0..<100 { _ = try await stage.ask() }
            await stage.advance(61_000)
            #expect(stage.told(Stage.backEnd).count == 100)
        }
    }

    // MARK: Live Activities

    /// A waiting update that asks for an answer shows that the work continues once the approval has ended.
    @Test(arguments: [true, false]) func aWaitingUpdateForAnEndedApprovalIsRewritten(isAnswered: Bool) async throws {
        try await Stage.play(limits: [(old: #""activityUpdateSeconds": 15"#, new: #""activityUpdateSeconds": 120"#)]) { stage in
            try await stage.start(1)
            let first = stage.now
            try await stage.take(.state("idle"))
            let (request, due) = try await stage.ask()
            if isAnswered { #expect(try await stage.respond(request)) } else { await stage.advance(to: due) }
            await stage.advance(to: first + 120_000)
            let pushes = stage.pushes(to: 1)
            try #require(pushes.map(\.at) == [first, first + 120_000])
            #expect(
                pushes[1].says(#""status":"processing""#) && pushes[1].says(#""approvalRequest":null"#), "\(pushes[1].payload)")
        }
    }

    @Test func anAnswerLeavesOtherApprovalsWaiting() async throws {
        try await Stage.play { stage in
            try await stage.start(1)
            let first = stage.now
            try await stage.take(.state("idle"))
            let (answered, _) = try await stage.ask()
            _ = try await stage.ask()
            #expect(try await stage.respond(answered))
            await stage.advance(to: first + 15_000)
            #expect(stage.pushes(to: 1).last?.says(#""status":"awaitingApproval""#) == true)
        }
    }
}
