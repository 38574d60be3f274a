import Testing
import Vocabulary

@testable import Policy

/// Combinations of policies.
@Suite struct PoliciesTests {
    private func companion(_ edits: (old: String, new: String)...) throws -> Policy {
        var text = try text("companion")
        for (old, new) in edits {
            try #require(text.contains(old))
            text = text.replacing(old, with: new)
        }
        return try Policy(Array(text.utf8))
    }

    private func refused(_ policies: [Policy]) -> PoliciesError? {
        do {
            _ = try Policies(policies)
            return nil
        } catch { return error }
    }

    @Test func roomsAndCompanionFitTogether() throws {
        let both = try Policies([builtIn("companion"), builtIn("rooms")])
        #expect(both.all.map(\.name) == ["rooms", "companion"])
        #expect(try both.rooms == builtIn("rooms").rooms)
        #expect(both.audience(.companion)?.limits.approvals?.answerableMs == 60_000)
        #expect(both.audience(.monitor) == nil && both.audience(.calls) == nil && both.audience(.rooms) == nil)
        #expect(both.longestLifeSeconds == 2_592_000)
        #expect(both.template("peer_waiting")?.pushType == .alert)
        #expect(both.template("activity_end")?.pushType == .liveactivity)
        #expect(both.template("other") == nil)
        let alone = try Policies([builtIn("rooms")])
        #expect(alone.audience(.companion) == nil && alone.template("activity_end") == nil && alone.longestLifeSeconds == 604_800)
    }

    /// A job has the time limit of its template's policy.
    @Test func jobsHaveTheLimitsOfTheirPolicy() throws {
        let both = try Policies([
            builtIn("rooms"), companion(("\"jobDeadlineSeconds\": 120", "\"jobDeadlineSeconds\": 30")),
        ])
        let rooms = try #require(both.template("peer_waiting")).jobs
        #expect(rooms == JobLimits(deadlineMs: 120_000, startGraceMs: 15_000, throttleMs: 30_000))
        #expect(try #require(both.template("task_failed")).jobs == JobLimits(deadlineMs: 30_000, startGraceMs: 0, throttleMs: 0))
        #expect(both.jobDeadlineMs == 120_000)
    }

    @Test func onlyOnePolicyOfAKindIsAllowed() throws {
        let mine = try companion(("\"name\": \"companion\"", "\"name\": \"mine\""))
        let two = try [builtIn("rooms"), builtIn("companion"), mine]
        #expect(refused(two) == .kindTwice(.companion, "companion", "mine"))
        #expect(try refused([builtIn("companion")]) == .noRooms)
        #expect(refused([]) == .noRooms)
    }

    @Test func namesAreUnique() throws {
        let named = try companion(("\"name\": \"companion\"", "\"name\": \"rooms\""))
        #expect(try refused([builtIn("rooms"), named]) == .nameTwice("rooms"))
        let clash = try Policy(
            rooms(
                "\"peer_waiting\"",
                "\"task_failed\": {\"pushType\":\"alert\",\"priority\":10,\"ttlSeconds\":9,\"body\":\"x\"}, \"peer_waiting\""))
        #expect(try refused([clash, builtIn("companion")]) == .templateTwice("task_failed", "rooms", "companion"))
        #expect(try refused([builtIn("companion"), clash])?.description.contains("rooms and companion") == true)
        #expect(refused([clash]) == nil)
    }

    /// The broker's templates must exist, and their fields must accept its values.
    @Test(
        arguments: [
            ("\"session_handoff\"", "\"handoff\"", "session_handoff"),
            ("[\"ios\", \"desktop\", \"web\"]", "[\"ios\", \"web\"]", "session_handoff"),
            ("\"max\": 999", "\"max\": 99", "activity_progress"), ("\"step\": 10", "\"step\": 20", "activity_approval"),
            ("\"min\": 0, \"max\": 86400", "\"min\": 10, \"max\": 86400", "activity_approval"),
            ("\"total\": {", "\"all\": {", "activity_progress"),
            ("\"questionId\": { \"kind\": \"handle\"", "\"questionId\": { \"kind\": \"flag\"", "question_asked"),
            (
                "\"completed\": {", "\"late\": { \"kind\": \"flag\", \"key\": \"late\" }, \"completed\": {", "activity_progress"
            ),
            ("\"pushType\": \"background\"", "\"event\": \"update\", \"pushType\": \"liveactivity\"", "clear_session"),
            ("\"approval_over\"", "\"over\"", "approval_over"), ("\"withdrawn\"]", "\"gone\"]", "approval_over"),
            ("\"expiresAt\": 60", "\"expiresAt\": 61", "approval_request"),
            ("\"approvalSeconds\": 60", "\"approvalSeconds\": 90", "approval_request"),
        ])
    func requiredTemplatesMustExist(_ old: String, _ new: String, _ template: String) throws {
        let changed = try companion((old, new))
        guard case .incompatible("companion", .companion, let what)? = try refused([builtIn("rooms"), changed]) else {
            return #expect(Bool(false), "it was not refused")
        }
        #expect(what.hasPrefix("template \(template) "))
    }

    @Test func roomsNeedTheirTemplate() throws {
        for (old, new) in [
            ("\"peer_waiting\"", "\"waiting\""),
            ("\"pushType\": \"alert\"", "\"fields\": {\"f\": {\"kind\": \"flag\", \"key\": \"f\"}}, \"pushType\": \"alert\""),
        ] {
            let refusal = refused([try Policy(rooms(old, new))])
            #expect(refusal?.description.contains("has no template peer_waiting sent to alert tokens, without fields") == true)
        }
    }

    /// Texts, sounds, priorities, lives and additional words can differ.
    @Test func otherPartsCanDiffer() throws {
        let mine = try companion(
            ("\"name\": \"companion\"", "\"name\": \"mine\""), ("Approval Needed", "Freigabe"), ("\"sound\": \"default\",", ""),
            ("\"priority\": 5,\n      \"ttlSeconds\": 300,", "\"priority\": 10, \"ttlSeconds\": 60,"),
            ("\"web\"]", "\"web\", \"watch\"]"), ("\"max\": 999", "\"max\": 1998"),
            ("\"approvalSeconds\": 60", "\"approvalSeconds\": 90"),
            ("\"expiresAt\": 60", "\"expiresAt\": 90"), ("\"badge\": 1,", "\"badge\": 0,"), ("\"mutable-content\": 1,", ""))
        #expect(try refused([builtIn("rooms"), mine]) == nil)
    }
}
