import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// Approvals and sessions of a companion, with the pushes that Apple gets.
@Suite(.timeLimit(.minutes(1)))
struct CompanionTests {
    private let broker = TestBroker.shared
    private let user = "user-\(UUID().uuidString)"
    /// A name with everything that a path could misread.
    private let session = "../s 1/ü%2F?#"

    /// A phone of the user.
    private struct Phone {
        let token = PushToken.random()
        let registration: Registration
        let sessions: HandleTable

        init(_ accounts: Accounts, _ session: String) async throws {
            registration = try await accounts.registerDevice(token)
            sessions = registration.table(.session, ["another", session])
        }

        /// Waits for the push of this number, counted from 0.
        func notification(_ number: Int = 0) async throws -> CompanionNotification {
            try #require(
                CompanionNotification(payload: try await TestBroker.shared.payload(number, to: token), sessions: sessions))
        }
    }

    @Test func anApprovalIsAnsweredOnce() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let (one, two) = (try await Phone(accounts, session), try await Phone(accounts, session))
        let receipt = try await backEnd.report(.approvalRequest(id: "mine/1"), in: session, of: user)
        #expect(receipt.pushes == PushCounts(queued: 2))
        #expect(!receipt.isRepeated)
        let requestID = try #require(receipt.requestID)

        for phone in [one, two] {
            let asked = try await phone.notification()
            #expect(asked.kind == .approval(requestID: requestID, expiresAt: receipt.expiresAt))
            #expect(receipt.expiresAt != nil)
            #expect(asked.sessionID == session)
            #expect(asked.threadIdentifier == phone.registration.handle(.session, session))
            #expect(!asked.isClearing)
        }
        // By the broker's id, and by the back end's own.
        let pending = try await accounts.approval(requestID)
        #expect(pending.status == .pending && pending.sessionID == session && pending.requestID == requestID)
        #expect(pending.expiresAt == receipt.expiresAt)
        #expect(try await backEnd.approval("mine/1").requestID == "mine/1")
        // Somebody else's is unknown.
        let stranger = try broker.accounts("stranger-\(user)")
        #expect(try await !stranger.respond(to: requestID, approved: true))
        let error = await #expect(throws: MayflyError.self) { try await stranger.approval(requestID) }
        #expect(error?.refusal?.kind == .gone)

        #expect(try await accounts.respond(to: requestID, approved: false, from: one.token))
        #expect(try await !accounts.respond(to: requestID, approved: true))
        #expect(try await backEnd.approval("mine/1").status == .denied)
        let cleared = try await two.notification(1)
        #expect(cleared.kind == .clearApproval(requestID: requestID, reason: .answered))
        #expect(cleared.isClearing && cleared.sessionHandle == nil)
        for payload in try await broker.payloads(to: two.token) { #expect(cleared.clears(payload)) }
        #expect(!cleared.clears(["requestId": "another", "type": "approval"]))
        #expect(!cleared.clears([:]))
        // The device that answered gets no push.
        #expect(try await broker.payloads(to: one.token).count == 1)
    }

    @Test func aUserClearsAndABackEndWithdraws() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let phone = try await Phone(accounts, session)
        let requestID = try #require(try await backEnd.report(.approvalRequest(), in: session, of: user).requestID)
        _ = try await phone.notification()
        #expect(try await accounts.clearApproval(requestID, except: phone.token) == 0)
        #expect(try await accounts.clearApproval(requestID) == 1)
        #expect(try await phone.notification(1).kind == .clearApproval(requestID: requestID, reason: .answered))
        #expect(try await accounts.approval(requestID).status == .pending)

        #expect(try await backEnd.clearApproval(requestID) == 1)
        #expect(try await phone.notification(2).kind == .clearApproval(requestID: requestID, reason: .withdrawn))
        #expect(try await accounts.approval(requestID).status == .withdrawn)
        #expect(try await !accounts.respond(to: requestID, approved: true))
        #expect(try await backEnd.clearApproval(requestID) == 0)
        #expect(try await accounts.clearApproval("unknown") == 0)
    }

    @Test func aSessionIsCleared() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let phone = try await Phone(accounts, session)
        let requestID = try #require(try await backEnd.report(.approvalRequest(), in: session, of: user).requestID)
        try await backEnd.report(.taskComplete, in: "another", of: user)
        let (asked, other) = (try await broker.payload(0, to: phone.token), try await broker.payload(1, to: phone.token))
        #expect(try await accounts.clearSession(session) == 1)
        let cleared = try await phone.notification(2)
        #expect(cleared.kind == .clearSession)
        #expect(cleared.isClearing && cleared.sessionID == session)
        #expect(cleared.clears(asked))
        #expect(!cleared.clears(other))
        // The back end names the user, and its approvals are withdrawn.
        try await backEnd.clearSession(session, of: user)
        #expect(try await accounts.approval(requestID).status == .withdrawn)
    }

    @Test func theOtherEvents() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let phone = try await Phone(accounts, session)
        let question = try await backEnd.report(.question(id: "q"), in: session, of: user)
        #expect(try await phone.notification().kind == .question(questionID: try #require(question.requestID)))
        #expect(question.expiresAt == nil)
        let asked = try await broker.payload(to: phone.token)
        #expect(try await backEnd.clearApproval("q") == 1)
        #expect(try await phone.notification(1).clears(asked))
        try await backEnd.report(.taskComplete, in: session, of: user)
        #expect(try await phone.notification(2).kind == .complete)
        // Without a back end.
        try await accounts.report(.taskFailed, in: session)
        #expect(try await phone.notification(3).kind == .failed)
        #expect(try await accounts.report(.state(.idle, from: .unknown("asleep")), in: session).pushes.queued == 0)
        // The categories are those that the policy sends.
        let categories = try await broker.payloads(to: phone.token).compactMap {
            ($0["aps"] as? [String: Any])?["category"] as? String
        }
        #expect(categories == [CompanionCategory.question, .complete, .failed].map(\.rawValue))
        let stranger = HandleTable()
        let unknown = try #require(CompanionNotification(payload: try await broker.payload(to: phone.token), sessions: stranger))
        #expect(unknown.sessionID == nil && unknown.sessionHandle != nil)
    }

    @Test func anEventIsTakenOnce() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let phone = try await Phone(accounts, session)
        let first = try await backEnd.report(.approvalRequest(), in: session, of: user, eventID: "e")
        let again = try await backEnd.report(.approvalRequest(), in: session, of: user, eventID: "e")
        #expect(again.isRepeated && again.pushes == PushCounts(queued: 0))
        #expect(again.requestID == first.requestID && again.expiresAt == first.expiresAt)
        _ = try await phone.notification()
        #expect(try await broker.payloads(to: phone.token).count == 1)
    }

    // MARK: Live Activities

    /// What a Live Activity of a new session shows after an event, decoded as ActivityKit does.
    private func shown(after event: SessionEvent) async throws -> SessionContentState {
        let (accounts, session) = (try broker.accounts(user), UUID().uuidString)
        let token = PushToken.random()
        _ = try await accounts.registerActivity(token, activityID: "a", sessionID: session)
        #expect(try await broker.backEnd().report(event, in: session, of: user).pushes.queued == 1)
        let aps = try #require(try await broker.payload(to: token)["aps"] as? [String: Any])
        let content = try JSONSerialization.data(withJSONObject: try #require(aps["content-state"]))
        let state = try JSONDecoder().decode(SessionContentState.self, from: content)
        // It writes what it reads: the app starts an activity with the same keys.
        let written = try JSONDecoder().decode(SessionContentState.self, from: JSONEncoder().encode(state))
        #expect(written == state)
        return state
    }

    @Test func liveActivities() async throws {
        let approval = try await shown(after: .approvalRequest())
        #expect(approval.status == .awaitingApproval)
        let request = try #require(approval.approvalRequest)
        #expect(try await broker.accounts(user).respond(to: request.requestID, approved: true))
        #expect(request.toolName == "Tool" && request.summary == "Open the app to see what it wants to do")
        #expect(
            try await shown(after: .question())
                == SessionContentState(status: .awaitingAnswer, currentOperation: "Waiting for your response"))
        #expect(
            try await shown(after: .progress(elapsed: .seconds(47), todo: TodoProgress(completed: 3, total: 7)))
                == SessionContentState(
                    status: .processing, elapsedSeconds: 40, todoProgress: TodoProgress(completed: 3, total: 7)))
        #expect(try await shown(after: .progress()) == SessionContentState(status: .processing))
        for state in [SessionState.idle, .processing, .awaitingAnswer, .completed, .error] {
            #expect(try await shown(after: .state(state)) == SessionContentState(status: state))
        }
        #expect(try await shown(after: .taskFailed) == SessionContentState(status: .error))
    }

    @Test func theEndOfATaskEndsItsActivity() async throws {
        let accounts = try broker.accounts(user)
        _ = try await accounts.registerActivity(.random(), activityID: "a", sessionID: "one")
        _ = try await accounts.registerActivity(.random(), activityID: "b", sessionID: "two")
        let status = try await accounts.companionStatus()
        #expect(!status.hasDevice)
        #expect(status.activities.map(\.activityID) == ["a", "b"])
        #expect(status.activities.map(\.sessionID) == ["one", "two"])
        #expect(status.activities.allSatisfy { abs($0.registeredAt.timeIntervalSinceNow) < 60 })
        try await accounts.report(.taskComplete, in: "one")
        // The token is destroyed with the push.
        try await eventually("the end") {
            try await accounts.companionStatus().activities.map(\.activityID) == ["b"] ? true : nil
        }
    }

    @Test func aLaterBrokersContent() throws {
        let json = #"{"status":"dreaming","elapsedSeconds":10,"todoProgress":null,"new":{"a":1}}"#
        let state = try JSONDecoder().decode(SessionContentState.self, from: Data(json.utf8))
        #expect(state == SessionContentState(status: .unknown("dreaming"), elapsedSeconds: 10))
    }
}

extension PushCounts {
    fileprivate init(queued: Int) {
        self = try! JSONDecoder().decode(PushCounts.self, from: Data(#"{"pushes":\#(queued)}"#.utf8))
    }
}
