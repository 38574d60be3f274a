import JSON

/// Reads `$.limits` of a policy for an audience.
struct AudienceLimitsReader {
    let findings: Findings

    /// Which keys there are for a kind of app.
    static func keys(_ kind: Policy.Kind) -> [String] {
        let all = [
            "deviceLifeSeconds", "sessionLifeSeconds", "registrationsPerOwner", "eventsPerUser", "tokenPushes",
            "jobDeadlineSeconds",
        ]
        return kind == .companion ? all + activityKeys + approvalKeys : all
    }

    private static let activityKeys = ["activityLifeSeconds", "activitiesPerOwner", "activityUpdateSeconds"]
    private static let approvalKeys = ["approvalSeconds", "answerKeptSeconds"]
    private static let ofOne =
        "one event goes to all of a user's registrations, and a bug in a back end must not make that thousands"

    func read(_ value: JSONValue?, of kind: Policy.Kind, at path: JSONPath) -> AudienceLimits? {
        guard let object = ObjectReader(value, at: path, known: Self.keys(kind), findings) else { return nil }
        // What is made on one day ends together, so that its row need not tell when it was made: hence the least lives.
        let device = object.int(
            "deviceLifeSeconds", in: 172_800...2_592_000,
            why:
                "the broker alone can open a registration's token, so it must be renewed at least every 30 days; it expires with "
                + "all registrations of its day, up to a day sooner")
        let session = session(object, of: kind)
        let registrations = object.int("registrationsPerOwner", in: 1...1_000, why: Self.ofOne)
        let events = object.budget("eventsPerUser")
        let pushes = object.budget("tokenPushes")
        let deadline = object.jobDeadline()
        let (activities, approvals) = kind == .companion ? (activities(object), approvals(object)) : (nil, nil)
        guard let device, let session, let registrations, let events, let pushes, let deadline else { return nil }
        return AudienceLimits(
            deviceLifeMs: device.secondsInMs, sessionLifeMs: session.secondsInMs, registrationsPerOwner: registrations,
            eventsPerUser: events, tokenPushes: pushes, jobDeadlineMs: deadline.secondsInMs, activities: activities,
            approvals: approvals)
    }

    private func session(_ object: ObjectReader, of kind: Policy.Kind) -> Int? {
        if kind == .calls {
            return object.int(
                "sessionLifeSeconds", in: 129_600...604_800,
                why:
                    "a call rings once, even if it is reported again within 24 hours, and its record is deleted within a week; "
                    + "it expires with all records of half a day, up to 12 hours sooner")
        }
        return object.int(
            "sessionLifeSeconds", in: 86_400...604_800,
            why: "a session's record is deleted within a week; it expires with all records of half a day, up to 12 hours sooner")
    }

    private func activities(_ object: ObjectReader) -> ActivityLimits? {
        let life = object.int(
            "activityLifeSeconds", in: 7_200...43_200,
            why:
                "the phone shows a Live Activity for 12 hours at most; it expires with all those of its hour, up to an hour sooner"
        )
        let perOwner = object.int("activitiesPerOwner", in: 1...1_000, why: Self.ofOne)
        let update = object.int(
            "activityUpdateSeconds", in: 1...3_600,
            why: "Apple delays updates that are too frequent, and an update of a Live Activity is rarely useful an hour later")
        guard let life, let perOwner, let update else { return nil }
        return ActivityLimits(lifeMs: life.secondsInMs, perOwner: perOwner, updateMs: update.secondsInMs)
    }

    private func approvals(_ object: ObjectReader) -> ApprovalLimits? {
        let approval = object.int(
            "approvalSeconds", in: 5...3_600, why: "somebody needs time to reach the phone, and a back end waits for the answer")
        let kept = object.int(
            "answerKeptSeconds", in: 1...86_400,
            why: "an answer is kept only for a back end that asks late")
        guard let approval, let kept else { return nil }
        return ApprovalLimits(answerableMs: approval.secondsInMs, answerKeptMs: kept.secondsInMs)
    }
}
