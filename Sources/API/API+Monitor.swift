import Broker
import HTTP1
import HTTPServer

/// The monitor's calls: devices, and what happens to what they watch.
extension API {
    /// - Returns: nil for a path that is not the monitor's.
    static func monitorRoute(_ path: String) -> [(method: Method, call: Call)]? { nil }
}
