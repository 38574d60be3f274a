import Broker
import HTTPServer

extension HTTPRequest {
    /// Calls `use` with the bearer of `Authorization` (RFC 6750 section 2.1); nil without one, or with another scheme. The engine refuses
    /// a second `Authorization`.
    func withBearer<Value, Failure: Error>(
        _ use: (Span<UInt8>) throws(Failure) -> Value
    ) throws(Failure) -> Value? {
        let found = try withHeader("authorization") { value throws(Failure) -> Value? in
            // The scheme's name is case-insensitive (RFC 9110 section 11.1).
            let scheme = Array("bearer ".utf8)
            guard value.count >= scheme.count, scheme.indices.allSatisfy({ value[$0] | 0x20 == scheme[$0] | 0x20 }) else {
                return nil
            }
            return try use(value.extracting(scheme.count..<value.count))
        }
        return found ?? nil
    }
}

extension Authenticator {
    /// The caller.
    /// - Throws: `.noJWT`, `.invalidJWT` and `.jwtExpired`.
    func principal(_ request: HTTPRequest, nowMs: UInt64) throws(BrokerError) -> Principal {
        let found = try request.withBearer { token throws(BrokerError) in try self.principal(of: token, nowMs: nowMs) }
        guard let found else { throw .noJWT }
        return found
    }
}

extension API {
    /// The caller of a call for apps with accounts.
    /// - Throws: `.audiencesOff` too.
    func principal(_ request: HTTPRequest) throws(BrokerError) -> Principal {
        guard let authenticator else { throw .audiencesOff }
        let principal = try authenticator.principal(request, nowMs: broker.wallMs)
        try RequestCharges.current?.become(principal)
        return principal
    }
}
