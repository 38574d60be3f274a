import Broker
import HTTP1
import HTTPServer

/// APNs on the operator's listener, in the shapes of the printer monitor's own server: what is configured, and keys and certificates anew.
public struct APNsControl: Sendable {
    static let statusPath = "/api/config/apns/status"
    static let renewalPath = "/api/config/apns/init"

    private let bundleID: String
    private let isProduction: Bool
    private let whatToSet: String
    private let renew: (@Sendable () async -> String?)?

    /// - Parameters:
    ///   - bundleID: and whether it is pushed to in production, where nobody says otherwise.
    ///   - whatToSet: the names of the settings.
    ///   - renew: reads keys and certificates again; returns what is wrong with them, nil for nothing. Nil where none are configured.
    public init(bundleID: String, isProduction: Bool, whatToSet: String, renew: (@Sendable () async -> String?)?) {
        self.bundleID = bundleID
        self.isProduction = isProduction
        self.whatToSet = whatToSet
        self.renew = renew
    }

    var status: HTTPResponse {
        .json(200) { json in
            json.add("configured", renew != nil)
            json.add("bundleId", bundleID)
            json.add("production", isProduction)
        }
    }

    func renewal(_ request: HTTPRequest) async -> HTTPResponse {
        guard request.method == .post else { return HTTPResponse(.methodNotAllowed(allowed: "POST")) }
        // A page that is open in a browser on this machine reaches loopback too, and can't leave this header out of a POST.
        guard request.header("origin") == nil else { return Self.failure(403, "This call is not for pages in a browser.") }
        guard let renew else { return Self.failure(400, "APNs not configured. Set \(whatToSet), and start again.") }
        if let fault = await renew() { return Self.failure(400, fault) }
        return .json(200) { json in
            json.add("success", true)
            json.add("message", "APNs configured")
        }
    }

    private static func failure(_ status: UInt16, _ error: String) -> HTTPResponse {
        .json(status) { json in
            json.add("success", false)
            json.add("error", error)
        }
    }
}
