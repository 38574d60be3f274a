import JSON
import Vocabulary

/// Reads one template of `$.templates` and compiles its payload.
struct TemplateReader {
    let findings: Findings
    /// Nil if the policy's limits are invalid.
    let jobs: JobLimits?

    static let commonKeys = [
        "pushType", "priority", "ttlSeconds", "handleKey", "constants", "fields", "times", "sendSlotSeconds", "jitterSeconds",
        "web",
    ]
    /// Copied to `aps.alert` under the same keys.
    private static let textKeys = ["title", "subtitle", "body"]
    private static let localizedKeys = ["title-loc-key", "loc-key"]
    /// Copied to `aps` under the same keys.
    private static let wordKeys = ["sound", "category"]
    static let alertKeys =
        textKeys + localizedKeys + wordKeys + [
            "interruption-level", "mutable-content", "content-available", "badge", "thread-id",
        ]
    /// Not allowed in an alert without a text, since nothing is shown.
    private static let shownKeys = wordKeys + ["interruption-level", "mutable-content", "content-available", "thread-id"]
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
        let web = web(of: name, pushType, object, texts: texts, aps: aps, payload: payload)
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
        let size = pieces.worstCase(fields: fields)
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
            web: web, pieces: pieces)
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

    /// The largest offset of `times`, in seconds.
    private static let longestTime = 2_592_000

    /// Reads the payload paths of times with their offsets from the event, sorted by path.
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

    /// The least time for sending a push after its delay, in seconds.
    private static let sendingSeconds = 10

    private func timing(_ object: ObjectReader, ttl: Int?) -> SendTiming {
        let why = "a job that waits longer misses its deadline, and its key is destroyed"
        let slot = object.has("sendSlotSeconds") ? object.int("sendSlotSeconds", in: 1...60, why: why) : nil
        let jitter = object.has("jitterSeconds") ? object.int("jitterSeconds", in: 1...60, why: why) : nil
        let timing = SendTiming(slotSeconds: slot, jitterSeconds: jitter)
        guard !timing.isAtOnce else { return timing }
        let path = object.path.member(slot == nil ? "jitterSeconds" : "sendSlotSeconds")
        // A push that misses its slot waits for one more.
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

// Apple's rules for each push type, and the content of `aps`.
extension TemplateReader {
    private func checkPushType(_ pushType: PushType, _ object: ObjectReader) {
        if pushType != .alert {
            for key in Self.alertKeys where object.has(key) {
                let why =
                    key == "content-available"
                    ? "the broker sets it in background and voip pushes, and a Live Activity doesn't wake the app"
                    : pushType == .background
                        ? "Apple delays or drops background pushes with text or sound"
                        : "the app shows a \(pushType) push itself, and Apple shows nothing"
                findings.add(
                    object.path.member(key), "is not allowed in a \(pushType) push", why: why,
                    do: "remove it, or make the push an alert")
            }
        } else if object.has("body"), object.has("loc-key") {
            duplicateMeaning(object, "body", "loc-key")
        } else if onlySetsBadge(object) {
            for key in Self.shownKeys where object.has(key) {
                findings.add(
                    object.path.member(key), "is not allowed in an alert without a text",
                    why: "such an alert only sets the badge and wakes the app", do: "remove it, or add body or loc-key")
            }
        } else if !object.has("body"), !object.has("loc-key") {
            findings.add(
                object.path.member("body"), "is missing", why: "an alert without text rings but shows nothing",
                do: "add body or loc-key; only a badge may be alone")
        }
        if pushType == .alert {
            if object.has("title"), object.has("title-loc-key") { duplicateMeaning(object, "title", "title-loc-key") }
            if object.has("subtitle"), object.has("loc-key") { duplicateMeaning(object, "subtitle", "loc-key") }
        }
        if pushType == .liveactivity {
            let event = object.string("event")
            if let event, event != "update", event != "end" {
                findings.add(
                    object.path.member("event"), "is not update or end",
                    why: "a Live Activity's token exists only after its start, so it can't receive other events",
                    do: "use update or end")
            }
            if object.has("dismissSeconds"), event == "update" {
                findings.add(
                    object.path.member("dismissSeconds"), "is not allowed in an update",
                    why: "a Live Activity that continues is not removed from the screen",
                    do: "remove it, or use it only if event is end")
            }
        } else {
            for key in Self.liveActivityKeys where object.has(key) {
                findings.add(
                    object.path.member(key), "is not allowed in a \(pushType) push",
                    why: "only Live Activities have events, stale times and dismissal times", do: "remove it")
            }
        }
    }

    /// Returns true for an alert that shows nothing but sets the badge. Apple doesn't allow badges in background pushes.
    private func onlySetsBadge(_ object: ObjectReader) -> Bool {
        object.has("badge") && !(Self.textKeys + Self.localizedKeys).contains(where: object.has)
    }

    private func duplicateMeaning(_ object: ObjectReader, _ text: String, _ localized: String) {
        findings.add(
            object.path.member(localized), "has the same role as \(text)",
            why: "with two texts it is undefined which one a phone shows",
            do: "use either constant or localized texts")
    }

    private func texts(_ object: ObjectReader) -> [(key: String, text: String)] {
        (Self.textKeys + Self.localizedKeys).compactMap { key in text(key, object).map { (key, $0) } }
    }

    /// Reads an optional text of a notification.
    func text(_ key: String, _ object: ObjectReader) -> String? {
        guard object.has(key), let text = object.string(key) else { return nil }
        guard !text.isEmpty, !text.hasControlCharacter else {
            findings.add(
                object.path.member(key), "is empty or has a control character", why: "a notification can't show it",
                do: "write the text, or remove the key")
            return nil
        }
        return text
    }

    private func aps(
        _ pushType: PushType, _ object: ObjectReader, texts: [(key: String, text: String)], payload: inout PayloadBuilder
    ) -> [String: PayloadTree] {
        switch pushType {
        case .background, .voip: return ["content-available": .constant(.number("1"))]
        case .liveactivity:
            return liveActivity(object)
        case .alert: break
        }
        var alert: [String: PayloadTree] = [:]
        for (key, text) in texts {
            alert[key] =
                Self.localizedKeys.contains(key)
                ? .constant(.string(text)) : .text(payload.parts(of: text, at: object.path.member(key)))
        }
        var aps: [String: PayloadTree] =
            onlySetsBadge(object) ? ["content-available": .constant(.number("1"))] : ["alert": .object(alert)]
        for key in Self.wordKeys where object.has(key) {
            guard let word = object.string(key) else { continue }
            guard (1...64).contains(word.utf8.count), word.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else {
                findings.add(
                    object.path.member(key), "is not 1 to 64 visible ASCII characters",
                    why: "it names something inside the app, which couldn't find it",
                    do: "use the name from the app")
                continue
            }
            aps[key] = .constant(.string(word))
        }
        if object.has("interruption-level"), let level = object.string("interruption-level") {
            if !Self.interruptionLevels.contains(level) {
                findings.add(
                    object.path.member("interruption-level"), "is not one of \(Self.interruptionLevels.joined(separator: ", "))",
                    why: "Apple supports no others", do: "use one of these")
            }
            aps["interruption-level"] = .constant(.string(level))
        }
        if object.has("thread-id"), let name = object.string("thread-id") {
            aps["thread-id"] = payload.handle(name, at: object.path.member("thread-id"))
        }
        if object.has("badge") {
            let badge = object.int(
                "badge", in: 0...999,
                why: "the app's icon shows it, 0 removes it, and larger counts are not useful")
            if let badge { aps["badge"] = .constant(.number(String(badge))) }
        }
        for (key, missed) in [("mutable-content", "change the notification"), ("content-available", "act on the push")]
        where object.has(key) {
            _ = object.int(key, in: 1...1, why: "Apple accepts only 1; without the key the app can't \(missed)")
            aps[key] = .constant(.number("1"))
        }
        return aps
    }

    private func liveActivity(_ object: ObjectReader) -> [String: PayloadTree] {
        var aps: [String: PayloadTree] = ["timestamp": .time(afterSeconds: 0, asText: false)]
        if case .string? = object["event"], let event = object["event"] { aps["event"] = .constant(event) }
        if object.has("staleSeconds") {
            let seconds = object.int(
                "staleSeconds", in: 1...43_200,
                why:
                    "the phone marks the state as stale after this time, and shows a Live Activity for 12 hours at most"
            )
            if let seconds { aps["stale-date"] = .time(afterSeconds: seconds, asText: false) }
        }
        if object.has("dismissSeconds") {
            let seconds = object.int(
                "dismissSeconds", in: 0...14_400,
                why: "the phone removes an ended Live Activity after four hours at the latest")
            if let seconds { aps["dismissal-date"] = .time(afterSeconds: seconds, asText: false) }
        }
        return aps
    }
}
