public import Sealing
import TLS

/// Shows who sends a request. Secret while it is valid.
public struct Authorization: Sendable, Equatable, Redacted {
    /// Unix seconds.
    public let issuedAtS: UInt64
    public let token: String
    /// The value of the request's `authorization` field.
    let value: String

    /// - Parameter scheme: RFC 9110, 11.4.
    public init(issuedAtS: UInt64, scheme: String, token: String) {
        self.issuedAtS = issuedAtS
        self.token = token
        value = scheme + " " + token
    }
}

/// Issues a lane's authorizations, and replaces those that the service refuses. Used only on the loop's thread.
protocol Signer: AnyObject {
    /// Returns nil while a new one can't be used yet. The lanes go on once it can.
    /// - Throws: if signing fails.
    func current(nowMs: UInt64, monotonicMs: UInt64) throws(TLSError) -> Authorization?
    /// - Parameters:
    ///   - isExpired: the service called `refused` expired.
    ///   - laneAdmittedAtMs: when the service last accepted one in the lane of the refusal, in monotonic ms. Nil if never.
    /// - Returns: true if the current one differs from `refused`.
    func renew(
        after refused: Authorization, isExpired: Bool, laneAdmittedAtMs: UInt64?, nowMs: UInt64, monotonicMs: UInt64
    ) -> Bool
    /// The service has accepted `admitted`.
    /// - Parameter refusedIssuedAtS: the date of one that it called invalid in the same lane since it last accepted one.
    /// - Returns: true if the clock is ahead: the service refused a later date and accepts this one.
    func noteAdmission(of admitted: Authorization, afterRefusalOf refusedIssuedAtS: UInt64?, monotonicMs: UInt64) -> Bool
}
