public import Ledger
public import Sealing
public import Shares
import Storage

/// Every error that a caller can get. Status, stable code, wording and metric are exhaustive matches, so that none of them can miss a new
/// case.
///
/// Broker code throws this error, `SealingError`, `SlotShortage` or `Shortage`. `init(thrown:)` maps all of them.
public enum BrokerError: Error, Sendable, Equatable {
    /// - Parameter cause: line, column and problem, without anything of the text.
    case malformedJSON(String)
    /// - Parameter alternative: what may be sent instead.
    case missingField(String, alternative: String? = nil)
    case wrongType(String, expected: String)
    case outOfRange(String, allowed: String)
    case invalidToken(String)
    case appNotServed
    /// No Web Push is sent, or no room was made for its addresses.
    case webPushOff
    case noCapability
    case malformedCapability
    case noJWT
    case invalidJWT(InvalidJWT)
    case jwtExpired
    /// The login's keys can't be read now, so the JWT is neither valid nor invalid.
    case keysUnavailable
    case notAMember
    /// A user's own JWT is valid for this user only.
    case anotherUser
    /// The call needs a back end's JWT.
    case backEndOnly
    /// No secret of the broker signed the webhook.
    case invalidSignature
    case memberRequired
    case roomNotFound
    case tokenNotFound
    case requestNotFound
    case deviceNotFound
    case tooManyRegistrations(limit: Int)
    case tooManySockets(limit: Int)
    case notFound
    /// No policy is in force for this kind of app, or no key for JWTs is configured.
    case audiencesOff
    case methodNotAllowed(allowed: String)
    /// A listener on loopback was called by a name other than localhost.
    case foreignHost
    /// A web page of an origin that is not allowed asked for a WebSocket.
    case foreignOrigin
    case upgradeRequired
    case joinCodeInUse
    case roomAlreadyAccepted
    case bodyTooLarge(limit: Int)
    case tooManyRequests(retryAfterSeconds: Int)
    case tooManyShortCodes
    case storageUnavailable
    case ledgerUnavailable
    case tooManyPushes
    /// No slot for a secret is free.
    case overloaded(SlotShortage)
    /// A resource is used up, but not by this caller.
    case outOf(Resource, retryAfterSeconds: Int)
    case shuttingDown

    /// The HTTP status (RFC 9110).
    public var status: Int {
        switch self {
        case .malformedJSON, .missingField, .wrongType, .outOfRange, .invalidToken, .appNotServed, .webPushOff: 400
        case .noCapability, .malformedCapability, .noJWT, .invalidJWT, .jwtExpired, .invalidSignature: 401
        case .notAMember, .memberRequired, .anotherUser, .backEndOnly, .foreignOrigin: 403
        case .roomNotFound, .notFound, .audiencesOff, .tokenNotFound, .requestNotFound, .deviceNotFound: 404
        case .methodNotAllowed: 405
        case .joinCodeInUse, .roomAlreadyAccepted, .tooManyRegistrations, .tooManySockets: 409
        case .bodyTooLarge: 413
        case .foreignHost: 421
        case .upgradeRequired: 426
        case .tooManyRequests, .tooManyShortCodes: 429
        case .storageUnavailable, .ledgerUnavailable, .tooManyPushes, .overloaded, .outOf, .shuttingDown, .keysUnavailable: 503
        }
    }

    /// The stable code of the problem document, and the metric's label.
    public var code: String {
        switch self {
        case .malformedJSON: "malformed_json"
        case .missingField: "missing_field"
        case .wrongType: "wrong_type"
        case .outOfRange: "out_of_range"
        case .invalidToken: "invalid_token"
        case .appNotServed: "app_not_served"
        case .webPushOff: "web_push_off"
        case .noCapability: "no_capability"
        case .malformedCapability: "malformed_capability"
        case .noJWT: "no_jwt"
        case .invalidJWT: "invalid_jwt"
        case .jwtExpired: "jwt_expired"
        case .keysUnavailable: "jwt_keys_unavailable"
        case .notAMember: "not_a_member"
        case .memberRequired: "member_required"
        case .anotherUser: "another_user"
        case .backEndOnly: "back_end_only"
        case .invalidSignature: "invalid_signature"
        case .tokenNotFound: "token_not_found"
        case .requestNotFound: "request_not_found"
        case .deviceNotFound: "device_not_found"
        case .tooManyRegistrations: "too_many_registrations"
        case .tooManySockets: "too_many_sockets"
        case .roomNotFound: "room_not_found"
        case .notFound: "not_found"
        case .audiencesOff: "audiences_off"
        case .methodNotAllowed: "method_not_allowed"
        case .foreignHost: "foreign_host"
        case .foreignOrigin: "foreign_origin"
        case .upgradeRequired: "upgrade_required"
        case .joinCodeInUse: "join_code_in_use"
        case .roomAlreadyAccepted: "room_already_accepted"
        case .bodyTooLarge: "body_too_large"
        case .tooManyRequests, .tooManyShortCodes: "too_many_requests"
        case .storageUnavailable: "storage_unavailable"
        case .ledgerUnavailable: "ledger_unavailable"
        case .tooManyPushes: "too_many_pushes"
        case .overloaded, .outOf: "overloaded"
        case .shuttingDown: "shutting_down"
        }
    }

    public var title: String {
        switch status {
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 409: "Conflict"
        case 413: "Content Too Large"
        case 421: "Misdirected Request"
        case 426: "Upgrade Required"
        case 429: "Too Many Requests"
        default: "Service Unavailable"
        }
    }

    /// The error and what to do. It never contains a value that the caller sent.
    public var detail: String {
        switch self {
        case .malformedJSON(let cause): "The body is invalid JSON at \(cause). Send one JSON object in UTF-8."
        case .missingField(let field, nil): "The field \(field) is missing. Add it."
        case .missingField(let field, let alternative?): "The field \(field) is missing. Add it, or send \(alternative)."
        case .wrongType(let field, let expected): "The field \(field) has the wrong type. Send \(expected)."
        case .outOfRange(let field, let allowed): "The field \(field) is out of range. Send \(allowed)."
        case .invalidToken(let field): "The field \(field) is not a push token. Send 1 to 100 bytes in hexadecimal."
        case .appNotServed:
            "This broker has no key for that app and environment. Send a bundleId and an environment that its operator configured, or neither."
        case .webPushOff:
            "This broker sends no Web Push. Send a token of Apple's, or none. Its operator can set --vapid-key, run mayfly push enable and restart it."
        case .noCapability: "The room id is missing. Send it as Authorization: Bearer."
        case .malformedCapability: "The bearer is not a room id. Send the 43 characters that create or accept returned."
        case .noJWT: "The JWT is missing. Send it as Authorization: Bearer."
        case .invalidJWT(let reason): reason.detail
        case .jwtExpired: "The JWT has expired. Get a new one and try again."
        case .keysUnavailable:
            "The broker can't read the keys of the app's login now, so it can't check the JWT. Keep the JWT and try again later."
        case .notAMember: "This client is not a member of the room, or its member secret is wrong."
        case .memberRequired: "This side has already used its member secret. Send member with client."
        case .anotherUser: "A user's JWT is valid for that user only. Name no other user, or use a back end's JWT."
        case .backEndOnly: "This call is for back ends. Send a JWT with the scope broker.notify."
        case .invalidSignature:
            "The body is not signed by a secret of this broker. Send X-CometChat-Signature: its HMAC-SHA256 in lower-case hexadecimal."
        case .tokenNotFound: "This user has no such token. It may have expired, or been replaced or deleted."
        case .requestNotFound: "Request expired or not found"
        case .deviceNotFound: "Device not found"
        case .tooManyRegistrations(let limit):
            "This user has \(limit) registrations of that kind, the policy's limit. Delete one."
        case .tooManySockets(let limit): "This user has \(limit) sockets open, the limit. Close one."
        case .roomNotFound: "The room doesn't exist. It may have ended, or the code is unknown or expired."
        case .notFound: "This path doesn't exist. See the documentation for the calls."
        case .audiencesOff:
            "This broker doesn't serve this kind of app. Its operator must set --jwt-algorithm and a key, and add a policy for it."
        case .methodNotAllowed(let allowed): "This path doesn't support that method. Use \(allowed)."
        case .foreignHost: "This listener serves this machine only. Call it as localhost, 127.0.0.1 or [::1]."
        case .foreignOrigin:
            "Web pages of this origin may not open sockets here. Ask the operator to add the origin to --cors-origins."
        case .upgradeRequired: "This path is for WebSockets only. Use a WebSocket client (RFC 6455)."
        case .joinCodeInUse: "The join code is in use. Choose another one."
        case .roomAlreadyAccepted: "The join code was already used. Ask for a new one."
        case .bodyTooLarge(let limit): "The body is larger than \(limit) bytes. Send less."
        case .tooManyRequests(let seconds): "Too many requests. Try again in \(seconds) s."
        case .tooManyShortCodes:
            "Too many rooms wait with short join codes, on this network or in all. Use a longer code, or try again later."
        case .storageUnavailable: "The broker could not confirm that the request is stored. Try again later."
        case .ledgerUnavailable: "The audit log can't be written, so nothing changed. Try again later."
        case .tooManyPushes: "The queue of pushes is full. This push was refused. Try again later."
        case .overloaded, .outOf: "The broker is overloaded, so nothing changed. Try again in a few seconds."
        case .shuttingDown: "The broker is stopping. Try again in a few seconds."
        }
    }

    /// The invalid field, or nil if the error is not about a field.
    public var field: String? {
        switch self {
        case .missingField(let field, _), .wrongType(let field, _), .outOfRange(let field, _), .invalidToken(let field): field
        default: nil
        }
    }

    /// Seconds for `Retry-After`.
    public var retryAfter: Int? {
        switch self {
        case .tooManyRequests(let seconds), .outOf(_, let seconds): seconds
        case .tooManyShortCodes: 60
        case .storageUnavailable, .ledgerUnavailable, .overloaded: 5
        case .tooManyPushes, .keysUnavailable: 10
        case .shuttingDown: 2
        default: nil
        }
    }

    /// The cause under which the ledger counts the refusal. Nil for a caller's mistake, which the ledger does not count.
    public var ledgerCause: Entry.RefusalCause? {
        switch self {
        case .tooManyRequests, .tooManyShortCodes: .throttled
        case .notAMember, .memberRequired, .anotherUser, .backEndOnly, .foreignOrigin: .forbidden
        case .noCapability, .malformedCapability, .noJWT, .invalidJWT, .jwtExpired, .invalidSignature: .unauthorized
        case .storageUnavailable, .ledgerUnavailable, .tooManyPushes, .overloaded, .outOf, .keysUnavailable: .unavailable
        default: nil
        }
    }

    /// The shortage to report to the operator. Nil if the error is the caller's, or was reported where it occurred.
    var shortage: String? {
        switch self {
        case .overloaded(let shortage): "secrets: \(shortage)"
        case .tooManyPushes: "courier: the limit of waiting pushes is reached; more are refused"
        default: nil
        }
    }

    /// The error that a caller gets for an error of the layers below. Returns nil for an error that is only for the operator.
    public init?(thrown error: any Error) {
        switch error {
        case let error as BrokerError: self = error
        case let error as SealingError: self.init(error)
        case let error as SlotShortage: self = .overloaded(error)
        case let error as Shortage: self.init(error)
        default: return nil
        }
    }

    public init(_ error: SealingError) {
        self =
            switch error {
            case .outOf(let shortage): .overloaded(shortage)
            case .doesNotOpen, .outOfReach: .storageUnavailable
            }
    }

    public init(_ shortage: Shortage) {
        self =
            switch shortage {
            case .overShare(_, let seconds): .tooManyRequests(retryAfterSeconds: seconds)
            case .exhausted(let resource, let seconds): .outOf(resource, retryAfterSeconds: seconds)
            }
    }

    init(_ error: StoreError) {
        self =
            switch error {
            case .ledgerBehind: .ledgerUnavailable
            case .closed, .superseded: .shuttingDown
            case .full, .readOnly, .unavailable, .damaged, .otherVersion, .noSchema, .otherTiming, .wrongClock, .lostCommits:
                .storageUnavailable
            }
    }
}
