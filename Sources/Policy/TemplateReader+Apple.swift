import JSON
import Vocabulary

// What Apple wants of each type of push, and what goes into `aps`.

extension TemplateReader {
    func checkPushType(_ pushType: PushType, _ object: ObjectReader) {
        if pushType != .alert {
            for key in Self.alertKeys where object.has(key) {
                findings.add(
                    object.path.member(key), "is not allowed in a \(pushType) push",
                    why: pushType == .background
                        ? "Apple delays or drops background pushes with text or sound"
                        : "the app shows a \(pushType) push itself, and Apple shows nothing",
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

    /// Whether an alert shows nothing: Apple allows a badge in no background push.
    private func onlySetsBadge(_ object: ObjectReader) -> Bool {
        object.has("badge") && !(Self.textKeys + Self.localizedKeys).contains(where: object.has)
    }

    private func duplicateMeaning(_ object: ObjectReader, _ text: String, _ localized: String) {
        findings.add(
            object.path.member(localized), "has the same role as \(text)",
            why: "with two texts it is undefined which one a phone shows",
            do: "use either constant or localized texts")
    }

    func texts(_ object: ObjectReader) -> [(key: String, text: String)] {
        (Self.textKeys + Self.localizedKeys).compactMap { key in
            guard object.has(key), let text = object.string(key) else { return nil }
            guard !text.isEmpty, !text.hasControlCharacter else {
                findings.add(
                    object.path.member(key), "is empty or has a control character", why: "a notification can't show it",
                    do: "write the text, or remove the key")
                return nil
            }
            return (key, text)
        }
    }

    func aps(
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
        if object.has("mutable-content") {
            _ = object.int(
                "mutable-content", in: 1...1, why: "Apple accepts only 1; without the key the app can't change the notification")
            aps["mutable-content"] = .constant(.number("1"))
        }
        return aps
    }

    private func liveActivity(_ object: ObjectReader) -> [String: PayloadTree] {
        var aps: [String: PayloadTree] = ["timestamp": .time(afterSeconds: 0)]
        if case .string? = object["event"], let event = object["event"] { aps["event"] = .constant(event) }
        if object.has("staleSeconds") {
            let seconds = object.int(
                "staleSeconds", in: 1...43_200,
                why:
                    "the phone marks the state as stale after this time, and shows a Live Activity for 12 hours at most"
            )
            if let seconds { aps["stale-date"] = .time(afterSeconds: seconds) }
        }
        if object.has("dismissSeconds") {
            let seconds = object.int(
                "dismissSeconds", in: 0...14_400,
                why: "the phone removes an ended Live Activity after four hours at the latest")
            if let seconds { aps["dismissal-date"] = .time(afterSeconds: seconds) }
        }
        return aps
    }
}
