import JSON

/// Reads `$.limits` of a policy for rooms.
struct LimitsReader {
    let findings: Findings

    func read(_ value: JSONValue?, at path: JSONPath) -> Limits? {
        let known = [
            "roomLifeSeconds", "joinCode", "knockThrottleSeconds", "tokenKnocks",
            "presenceSeconds", "presenceProbeSeconds", "peerGraceSeconds", "startGraceSeconds", "retryWindowSeconds",
            "jobDeadlineSeconds", "addressBits",
            "creations", "wrongCodes",
        ]
        let foreign = [
            "registrationLifeSeconds": (
                why: "rooms have no registrations, so it has no effect",
                remedy: "remove it; a policy for an audience has deviceLifeSeconds instead"
            )
        ]
        guard let object = ObjectReader(value, at: path, known: known, foreign: foreign, findings) else { return nil }

        let room = roomLife(object["roomLifeSeconds"], at: path.member("roomLifeSeconds"))
        let code = joinCode(object["joinCode"], at: path.member("joinCode"))
        let knock = object.int(
            "knockThrottleSeconds", in: 1...3600, why: "without a pause one side could ring the other's phone without end")
        let tokenKnocks = tokenKnocks(object, knockSeconds: knock)
        let presence = object.int(
            "presenceSeconds", in: 5...600,
            why: "a shorter time reacts to every lost packet, a longer one counts absent peers as present")
        let probe = presenceProbe(object)
        let peerGrace = object.int(
            "peerGraceSeconds", in: 0...60, why: "a longer grace suppresses knocks at a peer who is really absent")
        let startGrace = object.int("startGraceSeconds", in: 0...120, why: "a longer grace exceeds the job's deadline")
        let retry = object.int(
            "retryWindowSeconds", in: 1...120, why: "the copy for repeated answers is sealed for 120 seconds at most")
        let deadline = object.jobDeadline()
        let bits = addressBits(object["addressBits"], at: path.member("addressBits"))
        let creations = budgets(object["creations"], at: path.member("creations"))
        let wrongCodes = budgets(object["wrongCodes"], at: path.member("wrongCodes"))

        if let code, let retry, code.keptSeconds < retry {
            findings.add(
                path.member("joinCode").member("keptAfterAcceptSeconds"), "is shorter than retryWindowSeconds",
                why: "another room could use the code while the first one still answers repeats",
                do: "make it at least \(retry)")
        }
        if let peerGrace, let presence, peerGrace >= presence {
            findings.add(
                path.member("peerGraceSeconds"), "is not shorter than presenceSeconds",
                why: "the grace would outlast the presence report itself", do: "make it less than \(presence)"
            )
        }
        guard let room, let code, let knock, let tokenKnocks, let presence, let probe, let peerGrace, let startGrace, let retry,
            let deadline, let bits,
            let creations, let wrongCodes
        else { return nil }
        return Limits(
            roomLifeSeconds: room.range, roomLifeDefaultSeconds: room.default, codeLifeSeconds: code.life,
            codeLifeDefaultSeconds: code.lifeDefault,
            shortestCode: code.shortest, shortCodeBelow: code.shortBelow,
            pendingShortCodes: code.pendingShort, codeKeptAfterAcceptMs: code.keptSeconds.secondsInMs,
            retryWindowMs: retry.secondsInMs,
            knockThrottleMs: knock.secondsInMs, tokenKnocks: tokenKnocks, presenceMs: presence.secondsInMs,
            presenceProbeMs: probe.secondsInMs, peerGraceMs: peerGrace.secondsInMs,
            startGraceMs: startGrace.secondsInMs, jobDeadlineMs: deadline.secondsInMs, ipv4Bits: bits.ipv4, ipv6Bits: bits.ipv6,
            creations: creations, wrongCodes: wrongCodes)
    }

    private func roomLife(_ value: JSONValue?, at path: JSONPath) -> (range: ClosedRange<Int>, default: Int)? {
        guard let object = ObjectReader(value, at: path, known: ["min", "max", "default"], findings) else { return nil }
        let bounds = 1...2_592_000
        let why = "a key must be kept for a room's whole life, and 30 days is the limit for keys"
        let range = range(object, in: bounds, why: why)
        // The key is optional, since older policies don't have it.
        let asked = object.has("default") ? object.int("default", in: bounds, why: why) : 86_400
        guard let range, let asked else { return nil }
        guard object.has("default") else { return (range, min(max(asked, range.lowerBound), range.upperBound)) }
        guard range.contains(asked) else {
            findings.add(
                path.member("default"), "is not between min and max", why: "a room made without a life would be refused",
                do: "choose a number from \(range.lowerBound) to \(range.upperBound)")
            return nil
        }
        return (range, asked)
    }

    private func range(_ object: ObjectReader, in bounds: ClosedRange<Int>, why: String) -> ClosedRange<Int>? {
        let low = object.int("min", in: bounds, why: why)
        let high = object.int("max", in: bounds, why: why)
        guard let low, let high else { return nil }
        guard low <= high else {
            findings.add(
                object.path.member("min"), "is greater than max", why: "the range is empty", do: "make it at most \(high)"
            )
            return nil
        }
        return low...high
    }

    /// The key is optional, since older policies don't have it. They get the default.
    private func tokenKnocks(_ object: ObjectReader, knockSeconds: Int?) -> Budget? {
        guard object.has("tokenKnocks") else { return Limits.tokenKnocksDefault }
        let path = object.path.member("tokenKnocks")
        guard let budget = object.budget("tokenKnocks"), let knockSeconds else { return nil }
        let ofOneRoom = Int((budget.windowMs + knockSeconds.secondsInMs - 1) / knockSeconds.secondsInMs)
        guard budget.count >= ofOneRoom else {
            findings.add(
                path.member("count"), "is less than one room's limit for that time",
                why: "one room within its own limit could use up the quota of a phone's other rooms",
                do: "make it at least \(ofOneRoom), better several times that")
            return nil
        }
        return budget
    }

    /// The key is optional, since older policies don't have it. They get the default.
    private func presenceProbe(_ object: ObjectReader) -> Int? {
        guard object.has("presenceProbeSeconds") else { return Limits.presenceProbeDefaultSeconds }
        return object.int(
            "presenceProbeSeconds", in: 1...5,
            why: "a shorter wait treats a slow network as absence, a longer one delays the push")
    }

    private struct JoinCode {
        let life: ClosedRange<Int>
        let lifeDefault, shortest, shortBelow, pendingShort, keptSeconds: Int
    }

    private func joinCode(_ value: JSONValue?, at path: JSONPath) -> JoinCode? {
        let known = ["lifeSeconds", "shortest", "shortBelow", "pendingShort", "keptAfterAcceptSeconds"]
        guard let object = ObjectReader(value, at: path, known: known, findings) else { return nil }
        let lifeWhy =
            "the keys for looking up codes are per day, and a code that lives longer than a day would outlive its key"
        let lifePath = path.member("lifeSeconds")
        let lifeObject = ObjectReader(object["lifeSeconds"], at: lifePath, known: ["min", "max", "default"], findings)
        let life = lifeObject.flatMap { range($0, in: 1...86_400, why: lifeWhy) }
        let lifeDefault = lifeObject.flatMap { $0.int("default", in: 1...86_400, why: lifeWhy) }
        let shortest = object.int(
            "shortest", in: 4...64, why: "fewer than 4 characters are guessed in minutes, and requests allow no more than 64")
        let shortBelow = object.int("shortBelow", in: 4...64, why: "a join code has 4 to 64 characters")
        let pending = object.int(
            "pendingShort", in: 1...1_000_000, why: "the more rooms have short codes, the likelier a guess is right")
        let kept = object.int(
            "keptAfterAcceptSeconds", in: 1...3600,
            why: "a used code is kept only to report it as used")
        if let life, let lifeDefault, !life.contains(lifeDefault) {
            findings.add(
                lifePath.member("default"), "is not between min and max", why: "a code made without a life would be refused",
                do: "choose a number from \(life.lowerBound) to \(life.upperBound)")
            return nil
        }
        if let shortest, let shortBelow, shortBelow < shortest {
            findings.add(
                path.member("shortBelow"), "is less than shortest",
                why: "no code would be short, and pendingShort would have no effect",
                do: "make it at least \(shortest)")
        }
        guard let life, let lifeDefault, let shortest, let shortBelow, let pending, let kept else { return nil }
        return JoinCode(
            life: life, lifeDefault: lifeDefault, shortest: shortest, shortBelow: shortBelow, pendingShort: pending,
            keptSeconds: kept)
    }

    private func addressBits(_ value: JSONValue?, at path: JSONPath) -> (ipv4: Int, ipv6: Int)? {
        guard let object = ObjectReader(value, at: path, known: ["ipv4", "ipv6"], findings) else { return nil }
        let ipv4 = object.int(
            "ipv4", in: 16...32, why: "with a shorter prefix one caller could use up the budget of whole countries")
        let ipv6 = object.int(
            "ipv6", in: 32...64, why: "one household has a /56 or a /64; a longer prefix would give it a budget for each address")
        guard let ipv4, let ipv6 else { return nil }
        return (ipv4, ipv6)
    }

    private func budgets(_ value: JSONValue?, at path: JSONPath) -> Budgets? {
        guard let object = ObjectReader(value, at: path, known: ["perAddress", "overall"], findings) else { return nil }
        let perAddress = object.budget("perAddress")
        let overall = object.budget("overall")
        guard let perAddress, let overall else { return nil }
        guard overall.perDay >= perAddress.perDay else {
            findings.add(
                path.member("overall"), "is less than perAddress",
                why: "one address could use up everyone's budget",
                do: "raise overall or lower perAddress")
            return nil
        }
        return Budgets(perAddress: perAddress, overall: overall)
    }
}

extension ObjectReader {
    fileprivate func jobDeadline() -> Int? {
        int("jobDeadlineSeconds", in: 1...120, why: "the key of a waiting job is destroyed; two minutes is the limit")
    }

    /// Reads `{"count", "seconds"}` under `key`.
    fileprivate func budget(_ key: String) -> Budget? {
        guard let object = object(key, known: ["count", "seconds"]) else { return nil }
        let count = object.int(
            "count", in: 1...1_000_000_000, why: "zero would refuse everything, and more than a billion is not a limit")
        let seconds = object.int(
            "seconds", in: 1...86_400, why: "counted callers are remembered for one window, and a day is the limit")
        guard let count, let seconds else { return nil }
        return Budget(count: count, windowMs: seconds.secondsInMs)
    }
}

extension Int {
    var secondsInMs: UInt64 { UInt64(self) * 1_000 }
}

/// Reads `$.limits` of a policy for an audience.
struct AudienceLimitsReader {
    let findings: Findings

    /// The keys for a kind of app.
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
        // Rows of one day expire together, which hides when they were made. So lives must be longer than that.
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
