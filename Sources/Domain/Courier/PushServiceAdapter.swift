import HTTP2
import TLS
import Vocabulary

/// The part of the courier that differs between push services. The others (connections, queues, retries, holds, deadlines) are shared.
protocol PushServiceAdapter: Sendable {
    /// Returns an error that the service would report. Checked before sending, because services disconnect after repeated errors.
    func fault(of push: Push) -> PushReason?
    /// Returns the writer of a new connection's requests.
    func requestWriter(to endpoint: Endpoint) -> any RequestWriter
    /// Reads a response.
    /// - Parameter nowMs: when it arrived, unix ms.
    func answer(_ flight: Flight, status: Int, nowMs: UInt64) -> Answer
    /// The response's field with the push's name in the service's own records. Nil if it has none.
    var traceField: String? { get }
    /// A field that says how the service took a push, beside the status. Nil if there is none.
    var remarkField: String? { get }
}

/// No lane serves a push.
struct Unserved: Error {
    let reason: PushReason
    /// The alarm to raise. Nil if the broker raises one.
    let alarm: Alarm?
}

/// Writes the requests of one connection. Used only on the loop's thread.
protocol RequestWriter: AnyObject {
    /// - Parameter authorization: nil if the account presents a certificate.
    /// - Returns: the request's stream.
    func submit(_ delivery: Delivery, _ authorization: Authorization?, to session: PushSession) throws(HTTP2Error) -> Int32
}

/// The service, endpoint and credentials of a lane.
struct LaneSettings {
    let service: PushService
    let endpoint: Endpoint
    /// Presented in the TLS handshake.
    let certificate: ClientCertificate?
    /// Issues the authorization of its requests. Nil with a certificate.
    let signer: (any Signer)?
    /// The apps that it serves, in words for alarms.
    let apps: String
    /// True for a host that a stranger chose: nothing that it does may alarm the operator.
    var isQuiet = false
}
