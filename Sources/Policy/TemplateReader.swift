/// Reads one template of `$.templates` and compiles its payload.
struct TemplateReader {
    let findings: Findings
    let limits: Limits?

    static let commonKeys = [
        "pushType", "priority", "ttlSeconds", "handleKey", "constants", "fields", "sendSlotSeconds", "jitterSeconds",
    ]
    /// Written into `aps.alert`, under the same keys.
    static let textKeys = ["title", "subtitle", "body"]
    static let localizedKeys = ["title-loc-key", "loc-key"]
    /// Written into `aps`, under the same keys.
    static let wordKeys = ["sound", "category"]
    static let alertKeys = textKeys + localizedKeys + wordKeys + ["interruption-level", "mutable-content"]
    static let liveActivityKeys = ["event"]
    static let interruptionLevels = ["passive", "active", "time-sensitive", "critical"]

    private static let collapseWords = (
        why:
            "the collapse id is always the handle (22 bytes, of the 64 that Apple takes): a constant one would let one room replace another's push",
        remedy: "take it out"
    )
    private static let foreign: [String: (why: String, remedy: String)] = [
        "collapseId": collapseWords, "collapse-id": collapseWords, "apns-collapse-id": collapseWords,
        "topic": ("the topic is the app's bundle id from the configuration and the push type's suffix", "take it out"),
        "expiration": ("a push never outlives its token, so only a length of time can stand here", "use ttlSeconds"),
        "content-available": ("it is set for background and voip pushes and for no other", "take it out"),
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
                path, "is no name for a template", why: "the name stands in the public ledger and in metrics",
                do: "use 1 to 64 small letters, digits and _")
        }
        let known = Self.commonKeys + Self.alertKeys + Self.liveActivityKeys
        guard let object = ObjectReader(value, at: path, known: known, foreign: Self.foreign, findings) else { return nil }
        guard let typeName = object.string("pushType") else { return nil }
        guard let pushType = PushType(rawValue: typeName) else {
            findings.add(
                path.member("pushType"), "is not one of \(PushType.allCases.map(\.rawValue).joined(separator: ", "))",
                why: "tokens of no other kind are kept", do: "use one of these")
            return nil
        }
        checkPushType(pushType, object)
        let priority = priority(of: pushType, object)
        let ttl = object.int(
            "ttlSeconds", in: pushType == .voip ? 0...120 : 0...2_592_000,
            why: pushType == .voip
                ? "the phone must show a call for each voip push, and one that late rings for nobody"
                : "Apple keeps nothing for longer than 30 days")
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
        let aps = aps(pushType, object, texts: texts, payload: &payload)
        let tree = payload.finish(aps: aps, pushType: pushType)

        guard findings.list.count == before, let priority, let ttl else { return nil }
        let pieces = tree.pieces(fields: fields)
        let size = pieces.reduce(0) { $0 + $1.worstCase(fields: fields) }
        guard size <= pushType.payloadLimit else {
            findings.add(
                path, "can make a payload of \(size) bytes",
                why: "Apple refuses \(pushType) payloads over \(pushType.payloadLimit) bytes",
                do: "shorten texts, constants or the longest enum words")
            return nil
        }
        return Template(
            name: name, pushType: pushType, priority: priority, ttlSeconds: ttl, texts: texts.map { ($0.key, $0.text) },
            fields: fields,
            handleKey: handleKey, timing: timing, worstCasePayload: size, pieces: pieces)
    }

    private func checkPushType(_ pushType: PushType, _ object: ObjectReader) {
        if pushType != .alert {
            for key in Self.alertKeys where object.has(key) {
                findings.add(
                    object.path.member(key), "is not allowed in a \(pushType) push",
                    why: pushType == .background
                        ? "Apple delays or drops a background push that shows or sounds"
                        : "the app shows a \(pushType) push itself; Apple shows nothing of it",
                    do: "take it out, or make the push an alert")
            }
        } else if object.has("body"), object.has("loc-key") {
            duplicateMeaning(object, "body", "loc-key")
        } else if !object.has("body"), !object.has("loc-key") {
            findings.add(
                object.path.member("body"), "is missing", why: "an alert without a text rings and shows nothing",
                do: "add body or loc-key")
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
                    why: "a Live Activity's token is made after its start, so nothing else can be sent to it",
                    do: "write update or end")
            }
        } else if object.has("event") {
            findings.add(
                object.path.member("event"), "is not allowed in a \(pushType) push", why: "only Live Activities have events",
                do: "take it out")
        }
    }

    private func duplicateMeaning(_ object: ObjectReader, _ text: String, _ localized: String) {
        findings.add(
            object.path.member(localized), "says what \(text) says",
            why: "two texts for one place leave open which one a phone shows",
            do: "keep constant texts or texts that the phone translates, not both")
    }

    private func priority(of pushType: PushType, _ object: ObjectReader) -> Int? {
        guard let priority = object.int("priority", in: 1...10, why: "Apple knows the priorities 1 to 10") else { return nil }
        guard pushType.priorities.contains(priority) else {
            let allowed = pushType.priorities.map(String.init).joined(separator: " or ")
            findings.add(
                object.path.member("priority"), "is \(priority), which a \(pushType) push can't have",
                why: "Apple refuses the push or drops it in silence", do: "write \(allowed)")
            return nil
        }
        return priority
    }

    /// Seconds that a push must have left for being sent.
    static let sendingSeconds = 10

    private func timing(_ object: ObjectReader, ttl: Int?) -> SendTiming {
        let why = "a job that waits longer passes its deadline, and its key is gone"
        let slot = object.has("sendSlotSeconds") ? object.int("sendSlotSeconds", in: 1...60, why: why) : nil
        let jitter = object.has("jitterSeconds") ? object.int("jitterSeconds", in: 1...60, why: why) : nil
        let timing = SendTiming(slotSeconds: slot, jitterSeconds: jitter)
        guard !timing.isAtOnce else { return timing }
        let path = object.path.member(slot == nil ? "jitterSeconds" : "sendSlotSeconds")
        // One slot more, for what comes too late for its own.
        let wait = 2 * (slot ?? 0) + (jitter ?? 0)
        let wish = "keep twice the slot and the jitter together at least \(Self.sendingSeconds) s under "
        if let limits {
            let life = Int(limits.jobDeadlineMs / 1_000) - Int(limits.startGraceMs / 1_000)
            if wait + Self.sendingSeconds > life {
                findings.add(
                    path, "can hold a push back for \(wait) s, with the slot that it may miss", why: why,
                    do: wish + "jobDeadlineSeconds without startGraceSeconds, which is \(life) s")
            }
        }
        if let ttl, ttl > 0, wait + Self.sendingSeconds > ttl {
            findings.add(
                path, "can hold a push back for \(wait) s, with the slot that it may miss",
                why: "it would be sent when it is worth nothing any more", do: wish + "ttlSeconds, which is \(ttl) s")
        }
        return timing
    }

    private func texts(_ object: ObjectReader) -> [(key: String, text: String)] {
        (Self.textKeys + Self.localizedKeys).compactMap { key in
            guard object.has(key), let text = object.string(key) else { return nil }
            guard !text.isEmpty, !text.hasControlCharacter else {
                findings.add(
                    object.path.member(key), "is empty or holds a control character", why: "a notification can't show it",
                    do: "write the words, or take the key out")
                return nil
            }
            return (key, text)
        }
    }

    private func aps(
        _ pushType: PushType, _ object: ObjectReader, texts: [(key: String, text: String)], payload: inout PayloadBuilder
    ) -> [String: PayloadTree] {
        switch pushType {
        case .background, .voip: return ["content-available": .constant(.number("1"))]
        case .liveactivity:
            guard case .string? = object["event"], let event = object["event"] else { return [:] }
            return ["event": .constant(event), "timestamp": .time]
        case .alert: break
        }
        var alert: [String: PayloadTree] = [:]
        for (key, text) in texts {
            alert[key] =
                Self.localizedKeys.contains(key)
                ? .constant(.string(text)) : .text(payload.parts(of: text, at: object.path.member(key)))
        }
        var aps: [String: PayloadTree] = ["alert": .object(alert)]
        for key in Self.wordKeys where object.has(key) {
            guard let word = object.string(key) else { continue }
            guard (1...64).contains(word.utf8.count), word.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else {
                findings.add(
                    object.path.member(key), "is not 1 to 64 visible ASCII characters",
                    why: "it names something inside the app, and no app would find it",
                    do: "write the name as the app has it")
                continue
            }
            aps[key] = .constant(.string(word))
        }
        if object.has("interruption-level"), let level = object.string("interruption-level") {
            if !Self.interruptionLevels.contains(level) {
                findings.add(
                    object.path.member("interruption-level"), "is not one of \(Self.interruptionLevels.joined(separator: ", "))",
                    why: "Apple knows no other", do: "use one of these")
            }
            aps["interruption-level"] = .constant(.string(level))
        }
        if object.has("mutable-content") {
            _ = object.int(
                "mutable-content", in: 1...1, why: "Apple reads 1 and nothing else; without the key the app may change nothing")
            aps["mutable-content"] = .constant(.number("1"))
        }
        return aps
    }
}
