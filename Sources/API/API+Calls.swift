import Broker
import HTTP1
import HTTPServer

/// The calls' calls: tokens of phones that ring, and the webhook that says that somebody calls.
extension API {
    /// - Returns: nil for a path that is none of these.
    static func callsRoute(_ path: String) -> [(method: Method, call: Call)]? { nil }
}
