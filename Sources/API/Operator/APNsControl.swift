import Broker
import HTTPServer
import JSON

/// APNs on the operator's listener, in the shapes of the printer monitor's own server: what is configured, and keys and certificates anew.
public struct APNsControl: Sendable {
    /// The result of reading keys and certificates again. The earlier ones stay in use in the last two cases.
    public enum Renewal: Sendable {
        case inUse
        /// A file is invalid, or Apple refuses what it says; with an explanation.
        case refused(String)
        /// Apple could not be asked; with an explanation.
        case unknown(String)
    }

    private let bundleID: String
    private let isProduction: Bool
    private let whatToSet: String
    private let renew: (@Sendable () async -> Renewal)?

    /// - Parameters:
    ///   - bundleID: and whether it is pushed to in production, where nobody says otherwise.
    ///   - whatToSet: the names of the settings.
    ///   - renew: reads keys and certificates again. Nil if none are configured.
    public init(bundleID: String, isProduction: Bool, whatToSet: String, renew: (@Sendable () async -> Renewal)?) {
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
        // A page that is open in a browser on this machine reaches loopback too, and can't leave this header out of a POST.
        guard request.header("origin") == nil else {
            return Self.failure(403, "Browsers may not call this. Call it without an Origin header.")
        }
        guard let renew else { return Self.failure(400, "APNs is not configured. Set \(whatToSet), and restart.") }
        switch await renew() {
        case .inUse:
            return .json(200) { json in
                json.add("success", true)
                json.add("message", "APNs configured")
            }
        case .refused(let fault): return Self.failure(400, fault)
        case .unknown(let fault):
            var response = Self.failure(503, fault)
            response.headers.append(HTTPResponse.Header("Retry-After", "30"))
            return response
        }
    }

    private static func failure(_ status: UInt16, _ error: String) -> HTTPResponse {
        .json(status) { json in
            json.add("success", false)
            json.add("error", error)
        }
    }
}
