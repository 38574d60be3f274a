import JSON
import Vocabulary

/// Reads one template of `$.templates` and compiles its payload.
struct TemplateReader {
    let findings: Findings
    /// What the policy's limits come to; nil when they are no good.
    let jobs: JobLimits?

    static let commonKeys = [
        "pushType", "priority", "ttlSeconds", "handleKey", "constants", "fields", "times", "sendSlotSeconds", "jitterSeconds",
    ]
    /// Written into `aps.alert`, under the same keys.
    static let textKeys = ["title", "subtitle", "body"]
    static let localizedKeys = ["title-loc-key", "loc-key"]
    /// Written into `aps`, under the same keys.
    static let wordKeys = ["sound", "category"]
    static let alertKeys = textKeys + localizedKeys + wordKeys + ["interruption-level", "mutable-content", "badge", "thread-id"]
    /// What an alert without a text can't have: nothing is shown.
    static let shownKeys = wordKeys + ["interruption-level", "mutable-content", "thread-id"]
    static let liveActivityKeys = ["event", "staleSeconds", "dismissSeconds"]
    static let interruptionLevels = ["passive", "active", "time-sensitive", "critical"]

    private static let collapseWords = (
        why:
            "the collapse id is always the handle (22 bytes, of Apple's limit of 64): with a constant one, one room would replace another's push",
        remedy: "remove it"
    )
    private static let foreign: [String: (why: String, remedy: String)] = [
        "collapseId": collapseWords, "collapse-id": collapseWords, "apns-collapse-id": collapseWords,
        "topic": ("the topic is the app's bundle id from the configuration and the push type's suffix", "remove it"),
        "expiration": ("a push never outlives its token, so the policy has a length of time", "use ttlSeconds"),
        "timestamp": ("each update of a Live Activity carries its event's time", "remove it"),
        "stale-date": ("a date would be the same in every push", "use staleSeconds, counted from the event"),
        "dismissal-date": ("a date would be the same in every push", "use dismissSeconds, counted from the event"),
        "content-available": ("it is set for background and voip pushes, and for alerts that only set the badge", "remove it"),
    ]

    func read(_ name: String, _ value: JSONValue, at path: JSONPath) -> Template? {
        let before = findings.list.count
        let nameBytes = name.utf8
        if !(1...64).contains(nameBytes.count)
            || !nameBytes.allSatisfy({
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0)
                    || $0 == UInt8(ascii: "_")
            })
        {
            findings.add(
                path, "is not a valid template name", why: "the name is published in the ledger and in metrics",
                do: "use 1 to 64 lower-case letters, digits and _")
        }
        let known = Self.commonKeys + Self.alertKeys + Self.liveActivityKeys
        guard let object = ObjectReader(value, at: path, known: known, foreign: Self.foreign, findings) else { return nil }
        guard let typeName = object.string("pushType") else { return nil }
        guard let pushType = PushType(rawValue: typeName) else {
            findings.add(
                path.member("pushType"), "is not one of \(PushType.allCases.map(\.rawValue).joined(separator: ", "))",
                why: "tokens of other kinds are not stored", do: "use one of these")
            return nil
        }
        checkPushType(pushType, object)
        let priority = priority(of: pushType, object)
        let ttl = object.int(
            "ttlSeconds", in: pushType == .voip ? 0...120 : 0...2_592_000,
            why: pushType == .voip
                ? "the phone must show a call for each voip push, and a late call is useless"
                : "Apple stores pushes for 30 days at most")
        let timing = timing(object, ttl: ttl)
        let fieldReader = FieldReader(findings: findings)
        let fields = fieldReader.read(object["fields"], at: path.member("fields"))
        let handleKey =
            object.has("handleKey")
            ? object.string("handleKey").flatMap { fieldReader.key($0, at: path.member("handleKey")) } : nil
        let texts = texts(object)

        var payload = PayloadBuilder(findings: findings, path: path, fields: fields)
        payload.addConstants(object["constants"])
        payload.addHandle(at: handleKey)
        payload.addFields()
        let times = times(object["times"], at: path.member("times"))
        payload.addTimes(times)
        let aps = aps(pushType, object, texts: texts, payload: &payload)
        let tree = payload.finish(aps: aps, pushType: pushType)

        guard findings.list.count == before, let priority, let ttl else { return nil }
        let pieces = tree.pieces(fields: fields)
        guard timing.isAtOnce || !pieces.carryTime else {
            findings.add(
                path.member(object.has("sendSlotSeconds") ? "sendSlotSeconds" : "jitterSeconds"),
                "hides the time of the event, but the payload contains it",
                why: "a Live Activity's timestamp and all of times are counted from the event, so nothing would be hidden",
                do: "remove it, or the times")
            return nil
        }
        let size = pieces.reduce(0) { $0 + $1.worstCase(fields: fields) }
        guard size <= pushType.payloadLimit else {
            findings.add(
                path, "can make a payload of \(size) bytes",
                why: "Apple refuses \(pushType) payloads over \(pushType.payloadLimit) bytes",
                do: "shorten texts, constants or the longest enum words")
            return nil
        }
        guard let jobs else { return nil }
        return Template(
            name: name, pushType: pushType, priority: priority, ttlSeconds: ttl, texts: texts, fields: fields,
            times: times.map { ($0.key, $0.seconds) }, handleKey: handleKey, timing: timing, jobs: jobs, worstCasePayload: size,
            pieces: pieces)
    }

    private func priority(of pushType: PushType, _ object: ObjectReader) -> Int? {
        guard let priority = object.int("priority", in: 1...10, why: "Apple's priorities are 1 to 10") else { return nil }
        guard pushType.priorities.contains(priority) else {
            let allowed = pushType.priorities.map(String.init).joined(separator: " or ")
            findings.add(
                object.path.member("priority"), "is \(priority), which a \(pushType) push can't have",
                why: "Apple refuses the push or drops it in silence", do: "write \(allowed)")
            return nil
        }
        return priority
    }

    /// The longest time after an event that a payload may name, in seconds.
    static let longestTime = 2_592_000

    /// Payload keys and how many seconds after the event the time is that stands there, by key.
    private func times(_ value: JSONValue?, at path: JSONPath) -> [(name: String, key: [String], seconds: Int)] {
        guard let value else { return [] }
        guard case .object(let members) = value else {
            findings.wrongType(path, value, wanted: "an object")
            return []
        }
        guard let object = ObjectReader(value, at: path, known: members.map(\.key), findings) else { return [] }
        let keys = FieldReader(findings: findings)
        return members.map(\.key).sorted(by: JSONValue.precedes).compactMap { name in
            let seconds = object.int(
                name, in: 0...Self.longestTime,
                why: "it is counted in seconds from the event, and 30 days is the limit for everything here")
            guard let key = keys.key(name, at: path.member(name)), let seconds else { return nil }
            return (name, key, seconds)
        }
    }

    /// Seconds that a push must have left for being sent.
    static let sendingSeconds = 10

    private func timing(_ object: ObjectReader, ttl: Int?) -> SendTiming {
        let why = "a job that waits longer misses its deadline, and its key is destroyed"
        let slot = object.has("sendSlotSeconds") ? object.int("sendSlotSeconds", in: 1...60, why: why) : nil
        let jitter = object.has("jitterSeconds") ? object.int("jitterSeconds", in: 1...60, why: why) : nil
        let timing = SendTiming(slotSeconds: slot, jitterSeconds: jitter)
        guard !timing.isAtOnce else { return timing }
        let path = object.path.member(slot == nil ? "jitterSeconds" : "sendSlotSeconds")
        // One slot more, for what comes too late for its own.
        let wait = 2 * (slot ?? 0) + (jitter ?? 0)
        let wish = "keep twice the slot and the jitter together at least \(Self.sendingSeconds) s under "
        if let jobs {
            let life = Int(jobs.deadlineMs / 1_000) - Int(jobs.startGraceMs / 1_000)
            if wait + Self.sendingSeconds > life {
                findings.add(
                    path, "can delay a push for \(wait) s, including a missed slot", why: why,
                    do: wish
                        + "jobDeadlineSeconds\(jobs.startGraceMs == 0 ? "" : " without startGraceSeconds"), which is \(life) s")
            }
        }
        if let ttl, ttl > 0, wait + Self.sendingSeconds > ttl {
            findings.add(
                path, "can delay a push for \(wait) s, including a missed slot",
                why: "it would be sent after it expired", do: wish + "ttlSeconds, which is \(ttl) s")
        }
        return timing
    }
}
