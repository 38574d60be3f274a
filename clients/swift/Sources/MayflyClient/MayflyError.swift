import Foundation

/// Why a call failed. No description contains a secret.
public enum MayflyError: Error, Hashable, Sendable {
    /// The broker refused the call and kept nothing of it.
    case refused(Refusal)
    /// The request was never sent: no network, or no broker at this address.
    case unreachable(String)
    /// The request was sent and its answer lost. The broker may have carried it out.
    case noAnswer(String)
    /// The answer is not Mayfly's, but that of a proxy or another server. The status is 0 if it is no HTTP, and 101 for a message on a socket.
    case unexpectedAnswer(status: Int)
    /// The client's settings can't be used.
    case invalidConfiguration(String)

    /// The broker's refusal, if it refused.
    public var refusal: Refusal? { if case .refused(let refusal) = self { refusal } else { nil } }
}

/// A broker's refusal: `application/problem+json`, or an `error` message on a socket.
public struct Refusal: Hashable, Sendable {
    /// What to do about it.
    public enum Kind: Hashable, Sendable {
        /// The request is wrong. The same request is refused again.
        case invalid
        /// The caller is not who it has to be.
        case unauthorized
        /// Something else is there already, such as a room under this code.
        case conflict
        /// It ended, expired or never existed.
        case gone
        /// Something is used up, for this caller or for all. Try again after ``Refusal/retryAfter``, or free something.
        case exhausted
    }

    public let code: ErrorCode
    /// The broker's sentence for developers: what happened and what to do. At most 1,000 characters.
    public let detail: String
    /// The field at fault.
    public let field: String?
    /// How long to wait before the next try. Nil if another try doesn't help.
    public let retryAfter: Duration?

    public var kind: Kind { code.kind ?? (retryAfter == nil ? .invalid : .exhausted) }
}

/// The broker's error codes.
public enum ErrorCode: Hashable, Sendable {
    case malformedJSON, missingField, wrongType, outOfRange, invalidToken, appNotServed, webPushOff
    case noCapability, malformedCapability, notAMember, memberRequired
    case noJWT, invalidJWT, jwtExpired, anotherUser, backEndOnly, invalidSignature
    case audiencesOff, roomNotFound, tokenNotFound, requestNotFound, deviceNotFound
    case joinCodeInUse, roomAlreadyAccepted, tooManyRegistrations, tooManySockets
    case tooManyRequests, storageUnavailable, ledgerUnavailable, jwtKeysUnavailable, tooManyPushes
    case overloaded, tooManyConnections, shuttingDown
    case notFound, methodNotAllowed, foreignHost, foreignOrigin, bodyTooLarge, targetTooLong, headersTooLarge
    case malformedRequest, requestTimeout, unsupportedEncoding, expectationFailed, badUpgrade, upgradeRequired, upgradeVersion
    /// A code of a later broker.
    case unknown(String)

    public init(_ text: String) { self = Self.known[text] ?? .unknown(text) }

    /// Nil if the code is unknown.
    var kind: Refusal.Kind? {
        switch self {
        case .unknown: nil
        case .noCapability, .malformedCapability, .notAMember, .memberRequired, .noJWT, .invalidJWT, .jwtExpired, .anotherUser,
            .backEndOnly, .invalidSignature:
            .unauthorized
        case .roomNotFound, .tokenNotFound, .requestNotFound, .deviceNotFound: .gone
        case .joinCodeInUse, .roomAlreadyAccepted: .conflict
        case .tooManyRegistrations, .tooManySockets, .tooManyRequests, .storageUnavailable, .ledgerUnavailable,
            .jwtKeysUnavailable, .tooManyPushes, .overloaded, .tooManyConnections, .shuttingDown, .requestTimeout:
            .exhausted
        default: .invalid
        }
    }

    static let known: [String: ErrorCode] = [
        "malformed_json": .malformedJSON, "missing_field": .missingField, "wrong_type": .wrongType, "out_of_range": .outOfRange,
        "invalid_token": .invalidToken, "app_not_served": .appNotServed, "web_push_off": .webPushOff,
        "no_capability": .noCapability,
        "malformed_capability": .malformedCapability, "not_a_member": .notAMember, "member_required": .memberRequired,
        "no_jwt": .noJWT, "invalid_jwt": .invalidJWT, "jwt_expired": .jwtExpired,
        "another_user": .anotherUser,
        "back_end_only": .backEndOnly, "invalid_signature": .invalidSignature, "audiences_off": .audiencesOff,
        "room_not_found": .roomNotFound, "token_not_found": .tokenNotFound, "request_not_found": .requestNotFound,
        "device_not_found": .deviceNotFound, "join_code_in_use": .joinCodeInUse, "room_already_accepted": .roomAlreadyAccepted,
        "too_many_registrations": .tooManyRegistrations, "too_many_sockets": .tooManySockets,
        "too_many_requests": .tooManyRequests, "storage_unavailable": .storageUnavailable,
        "ledger_unavailable": .ledgerUnavailable, "jwt_keys_unavailable": .jwtKeysUnavailable,
        "too_many_pushes": .tooManyPushes, "overloaded": .overloaded,
        "too_many_connections": .tooManyConnections, "shutting_down": .shuttingDown, "not_found": .notFound,
        "method_not_allowed": .methodNotAllowed, "foreign_host": .foreignHost,
        "foreign_origin": .foreignOrigin, "body_too_large": .bodyTooLarge, "target_too_long": .targetTooLong,
        "headers_too_large": .headersTooLarge, "malformed_request": .malformedRequest,
        "request_timeout": .requestTimeout, "unsupported_encoding": .unsupportedEncoding,
        "expectation_failed": .expectationFailed, "bad_upgrade": .badUpgrade, "upgrade_required": .upgradeRequired,
        "upgrade_version": .upgradeVersion,
    ]
}

extension MayflyError: CustomStringConvertible, LocalizedError {
    public var description: String {
        switch self {
        case .refused(let refusal): "The broker refused the call (\(refusal.code)): \(refusal.detail)"
        case .unreachable(let why): "The broker can't be reached: \(why). Nothing was sent; try again when there is a network."
        case .noAnswer(let why):
            "The broker's answer was lost: \(why). The call may have been carried out; repeat it with the same values."
        case .unexpectedAnswer(status: 300..<400):
            "The server redirects to another address, which Mayfly never does. Use the broker's final address."
        case .unexpectedAnswer(let status):
            """
            The answer is not Mayfly's (status \(status)). Check the broker's address, and the proxy before it: behind a proxy, the broker may be \
            down.
            """
        case .invalidConfiguration(let why): why
        }
    }

    public var errorDescription: String? { description }
}
