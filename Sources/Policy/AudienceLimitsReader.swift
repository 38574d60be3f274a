/// Reads `$.limits` of a policy for an audience.
struct AudienceLimitsReader {
    let findings: Findings

    static let keys = [
        "deviceLifeSeconds", "activityLifeSeconds", "sessionLifeSeconds", "registrationsPerOwner", "activitiesPerOwner",
        "activityUpdateSeconds", "approvalSeconds", "answerKeptSeconds", "eventsPerUser", "tokenPushes",
        "jobDeadlineSeconds",
    ]

    func read(_ value: JSONValue?, at path: JSONPath) -> AudienceLimits? {
        guard let object = ObjectReader(value, at: path, known: Self.keys, findings) else { return nil }
        // What is made on one day ends together, so that its row need not tell when it was made: hence the least lives.
        let device = object.int(
            "deviceLifeSeconds", in: 172_800...2_592_000,
            why: "the broker alone can open a registration's token, so it must be renewed at least every 30 days; its end is "
                + "that of a day's registrations, up to a day sooner")
        let activity = object.int(
            "activityLifeSeconds", in: 7_200...43_200,
            why: "the phone shows a Live Activity for 12 hours at most; its end is that of an hour's, up to an hour sooner")
        let session = object.int(
            "sessionLifeSeconds", in: 86_400...604_800,
            why: "what is known of a session is forgotten within a week; its end is that of half a day's, up to 12 hours sooner")
        let ofOne = "one event is pushed to all that a user has, and a back end's loop must not make that thousands"
        let registrations = object.int("registrationsPerOwner", in: 1...1_000, why: ofOne)
        let activities = object.int("activitiesPerOwner", in: 1...1_000, why: ofOne)
        let update = object.int(
            "activityUpdateSeconds", in: 1...3_600,
            why: "Apple holds updates back that come too often, and those of a Live Activity are seldom of use an hour later")
        let approval = object.int(
            "approvalSeconds", in: 5...3_600, why: "somebody has to reach the phone, and a back end waits for the answer")
        let answer = object.int(
            "answerKeptSeconds", in: 1...86_400,
            why: "an answer is kept for a back end that asks late, not to remember who said what")
        let events = object.budget("eventsPerUser")
        let pushes = object.budget("tokenPushes")
        let deadline = object.jobDeadline()
        guard let device, let activity, let session, let registrations, let activities, let update, let approval, let answer,
            let events, let pushes, let deadline
        else { return nil }
        return AudienceLimits(
            deviceLifeMs: device.secondsInMs, activityLifeMs: activity.secondsInMs, sessionLifeMs: session.secondsInMs,
            registrationsPerOwner: registrations, activitiesPerOwner: activities, activityUpdateMs: update.secondsInMs,
            approvalMs: approval.secondsInMs, answerKeptMs: answer.secondsInMs, eventsPerUser: events, tokenPushes: pushes,
            jobDeadlineMs: deadline.secondsInMs)
    }
}
