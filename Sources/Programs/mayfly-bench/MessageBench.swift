import Linux
import Sodium
import TLS
import Vocabulary
import WebPush

/// Measures the encryption of Web Push messages alone.
enum MessageBench {
    static func run(_ flags: Flags) throws {
        let messages = try flags.count("messages", default: 20_000)
        let (point, auth) = (try ECDHKey().point, Sodium.randomBytes(MessageEncryption.authCount))
        let text = Self.text("q1w2e3r4t5y6u7i8o9p0aa")
        let start = Clock.processNs
        for _ in 0..<messages { _ = try MessageEncryption.encrypt(text, to: point.span, auth: auth.span) }
        let busy = Clock.processNs - start
        Standard.output("{\"messages\": \(messages), \"cpuSeconds\": \(Double(busy) / 1e9)}\n")
    }

    /// The text of a knock, as a browser receives it.
    static func text(_ handle: String) -> [UInt8] {
        let data = #"{"roomId":"\#(handle)","template":"peer_waiting"}"#
        let shown =
            #"{"title":"Your chat partner is waiting","tag":"\#(handle)","navigate":"https://app.example/","data":\#(data)}"#
        return Array(#"{"mutable":true,"web_push":8030,"notification":\#(shown)}"#.utf8)
    }
}
