import JSON

/// Reads `$.limits` of a policy: the rows of its kind, and how they must agree.
struct LimitsReader {
    let findings: Findings

    func read(_ value: JSONValue?, of kind: Policy.Kind, at path: JSONPath) -> (PolicyLimits, LimitValues)? {
        let rows = kind.limitRows
        let foreign = [
            "registrationLifeSeconds": (
                why: "rooms have no registrations, so it has no effect",
                remedy: "remove it; a policy for an audience has deviceLifeSeconds instead"
            )
        ]
        guard
            let object = ObjectReader(
                value, at: path, known: LimitValues.names(rows), foreign: kind == .rooms ? foreign : [:], findings)
        else { return nil }
        var values = LimitValues(object, rows)
        if kind == .rooms {
            fitDefaultLife(&values)
            crossCheck(values, path)
        }
        guard values.isComplete(rows), kind != .rooms || Self.lives.allSatisfy(values.isRange) else { return nil }
        return (kind == .rooms ? .rooms(Limits(values)) : .audience(AudienceLimits(values, of: kind)), values)
    }

    private static let lives = ["roomLifeSeconds", "joinCode.lifeSeconds"]

    /// A default that the policy doesn't state is within its bounds.
    private func fitDefaultLife(_ values: inout LimitValues) {
        let key = "roomLifeSeconds.default"
        guard !values.isGiven(key), let life = values.find(key), let least = values.find("roomLifeSeconds.min"),
            let most = values.find("roomLifeSeconds.max")
        else { return }
        values.set(key, min(max(life, least), most))
    }

    /// Checks the limits of a policy for rooms against each other.
    private func crossCheck(_ values: LimitValues, _ path: JSONPath) {
        checkLives("roomLifeSeconds", "a room", values, path)
        checkLives("joinCode.lifeSeconds", "a code", values, path)
        checkKnocks(values, path)
        checkCodes(values, path)
        if let grace = values.find("peerGraceSeconds"), let presence = values.find("presenceSeconds"), grace >= presence {
            findings.add(
                path.member("peerGraceSeconds"), "is not shorter than presenceSeconds",
                why: "the grace would outlast the presence report itself", do: "make it less than \(presence)"
            )
        }
        for key in ["creations", "wrongCodes"] {
            guard let one = values.findBudget(key + ".perAddress"), let all = values.findBudget(key + ".overall"),
                all.perDay < one.perDay
            else { continue }
            findings.add(
                path.member(key).member("overall"), "is less than perAddress", why: "one address could use up everyone's budget",
                do: "raise overall or lower perAddress")
        }
    }

    private func checkLives(_ key: String, _ thing: String, _ values: LimitValues, _ path: JSONPath) {
        let lives = key.split(separator: ".").reduce(path) { $0.member(String($1)) }
        guard let low = values.find(key + ".min"), let high = values.find(key + ".max") else { return }
        if low > high {
            findings.add(lives.member("min"), "is greater than max", why: "the range is empty", do: "make it at most \(high)")
        } else if let asked = values.find(key + ".default"), !(low...high).contains(asked) {
            findings.add(
                lives.member("default"), "is not between min and max", why: "\(thing) made without a life would be refused",
                do: "choose a number from \(low) to \(high)")
        }
    }

    private func checkKnocks(_ values: LimitValues, _ path: JSONPath) {
        guard let throttle = values.find("knockThrottleSeconds"), values.isGiven("tokenKnocks.count"),
            let budget = values.findBudget("tokenKnocks")
        else { return }
        let ofOneRoom = Int((budget.windowMs + throttle.secondsInMs - 1) / throttle.secondsInMs)
        if budget.count < ofOneRoom {
            findings.add(
                path.member("tokenKnocks").member("count"), "is less than one room's limit for that time",
                why: "one room within its own limit could use up the quota of a phone's other rooms",
                do: "make it at least \(ofOneRoom), better several times that")
        }
    }

    private func checkCodes(_ values: LimitValues, _ path: JSONPath) {
        let code = path.member("joinCode")
        if let kept = values.find("joinCode.keptAfterAcceptSeconds"), let retry = values.find("retryWindowSeconds"), kept < retry
        {
            findings.add(
                code.member("keptAfterAcceptSeconds"), "is shorter than retryWindowSeconds",
                why: "another room could use the code while the first one still answers repeats", do: "make it at least \(retry)")
        }
        if let shortest = values.find("joinCode.shortest"), let below = values.find("joinCode.shortBelow"), below < shortest {
            findings.add(
                code.member("shortBelow"), "is less than shortest",
                why: "no code would be short, and pendingShort would have no effect", do: "make it at least \(shortest)")
        }
    }
}
