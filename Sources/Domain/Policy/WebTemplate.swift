import JSON
import Vocabulary

/// A template's notification in browsers, as a declarative push message (W3C Push API). The policy's reader compiles it.
public struct WebTemplate: Sendable {
    /// The title with placeholders.
    public let title: String
    /// The text with placeholders. Nil if browsers show only the title.
    public let body: String?
    /// True if the notification stays until somebody closes or clicks it.
    public let requireInteraction: Bool
    /// The path that a click opens at the web app's origin, e.g. `/`.
    public let path: String
    /// The size of the largest possible message in bytes, with the longest origin.
    public let worstCase: Int

    let pieces: [Piece]

    /// The most bytes of a message. All messages are padded to this size, so that their size doesn't reveal the template.
    public static let longestMessage = 1_024
    /// The most bytes of an origin.
    public static let longestOrigin = 200
    /// Shown if the template has no text. A declarative message requires a title.
    static let defaultTitle = "Notification"
}

extension TemplateReader {
    static let webKeys = ["title", "requireInteraction", "path"]

    /// Reads `web` and compiles what browsers show.
    /// - Parameters:
    ///   - aps: the content of `aps`. Its `alert` has the title and the body.
    ///   - payload: all that is beside `aps`.
    /// - Returns: nil if the push isn't sent to browsers. A push that shows nothing by itself needs `web`.
    func web(
        of name: String, _ pushType: PushType, _ object: ObjectReader, texts: [(key: String, text: String)],
        aps: [String: PayloadTree], payload: PayloadBuilder
    ) -> WebTemplate? {
        var alert: [String: PayloadTree] = [:]
        if case .object(let shown)? = aps["alert"] { alert = shown }
        guard object.has("web") || !alert.isEmpty else { return nil }
        if object.has("web"), pushType == .background || pushType == .liveactivity {
            findings.add(
                object.path.member("web"), "is not allowed in a \(pushType) push",
                why: pushType == .background
                    ? "it shows nothing, and a phone revokes a web app's subscription after three such pushes"
                    : "browsers have no Live Activities", do: "remove it, or make the push an alert")
            return nil
        }
        let web = object.has("web") ? object.object("web", known: Self.webKeys) : nil
        let title = web.flatMap(webTitle)
        let path = web.flatMap(webPath) ?? "/"
        let requireInteraction = web?.has("requireInteraction") == true && web?.bool("requireInteraction") == true
        func text(_ key: String) -> String? { texts.first { $0.key == key }?.text }
        // Browsers show the site's name above, as iOS shows the app's. So a text without a title is the title.
        let isBodyTitle = title == nil && text("title") == nil && text("body") != nil
        let shown = title ?? text("title") ?? text("body") ?? WebTemplate.defaultTitle
        let titleTree = (title == nil ? alert[isBodyTitle ? "body" : "title"] : nil) ?? .constant(.string(shown))
        guard
            let message = payload.webMessage(
                of: name, title: titleTree, body: isBodyTitle ? nil : alert["body"], requireInteraction: requireInteraction,
                path: path)
        else { return nil }
        let pieces = message.pieces(fields: payload.fields)
        let size = pieces.worstCase(fields: payload.fields)
        guard size <= WebTemplate.longestMessage else {
            findings.add(
                object.path, "can make a Web Push of \(size) bytes",
                why: "all are padded to \(WebTemplate.longestMessage) bytes, so that their size doesn't reveal the template",
                do: "shorten texts, constants or the longest enum words")
            return nil
        }
        return WebTemplate(
            title: shown, body: isBodyTitle ? nil : text("body"), requireInteraction: requireInteraction, path: path,
            worstCase: size, pieces: pieces)
    }

    private func webTitle(_ web: ObjectReader) -> String? {
        guard let title = text("title", web) else { return nil }
        guard !title.utf8.contains(where: isBrace) else {
            findings.add(
                web.path.member("title"), "has a brace", why: "this title is constant, so a field's name itself would be shown",
                do: "remove it, or name the field in the template's own title")
            return nil
        }
        return title
    }

    private func webPath(_ web: ObjectReader) -> String? {
        guard web.has("path"), let path = web.string("path") else { return nil }
        guard path.utf8.first == UInt8(ascii: "/"), path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f && !isBrace($0) }) else {
            findings.add(
                web.path.member("path"), "is not / and visible ASCII characters without braces",
                why: "a click opens the web app's origin followed by it, and it can't have placeholders",
                do: "write a path such as /chats")
            return nil
        }
        return path
    }

    private func isBrace(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "{") || byte == UInt8(ascii: "}") }
}

extension PayloadBuilder {
    /// Returns a declarative push message. Its `data` has the values beside `aps`, at the same paths, and the template's name.
    /// Returns nil if such a value is in the name's place.
    fileprivate func webMessage(
        of template: String, title: PayloadTree, body: PayloadTree?, requireInteraction: Bool, path: String
    ) -> PayloadTree? {
        var data = tree
        guard data.insert(.constant(.string(template)), at: ["template"]) else {
            findings.add(
                self.path, "uses the payload key template", why: "browsers get the template's name under this key",
                do: "choose another key")
            return nil
        }
        var notification: [String: PayloadTree] = [
            "data": data, "navigate": .text([.origin, .words(path)]), "tag": .handle, "title": title,
        ]
        notification["body"] = body
        if requireInteraction { notification["requireInteraction"] = .constant(.bool(true)) }
        // Safari then lets a service worker change the text, e.g. to insert a nickname.
        return .object([
            "mutable": .constant(.bool(true)), "notification": .object(notification), "web_push": .constant(.number("8030")),
        ])
    }
}
