public import Vocabulary

/// A reason in words, for `mayfly apns explain`. `docs/why-no-push.md` lists the reasons by fault.
public struct Explanation: Sendable, Equatable {
    /// The party that can fix the cause.
    public enum Fault: String, Sendable, CaseIterable {
        /// The app, the phone, or the wrong kind of token.
        case app
        /// This broker's keys, team, topic, environment, clock or network.
        case settings
        case apple
        /// A bug of this program that should be reported.
        case mayfly
        case nobody

        public var words: String {
            switch self {
            case .app: "the app's or its phone's"
            case .settings: "this broker's settings"
            case .apple: "Apple's, or the network's"
            case .mayfly: "Mayfly's: please report it"
            case .nobody: "nobody's"
            }
        }
    }

    public let means: String
    public let fault: Fault
    /// The operator's next step.
    public let remedy: String

    public init(_ means: String, _ fault: Fault, _ remedy: String) {
        self.means = means
        self.fault = fault
        self.remedy = remedy
    }
}

extension PushReason {
    /// Mayfly's reaction, if Apple sent the reason with its documented status.
    public var does: String {
        switch self {
        case .unreachable: "tries until the push's deadline, then records `unreachable`; the token is kept"
        case .unknown: "tries again with the same apns-id until the deadline, then records `unknown`; the token is kept"
        case .late: "records `unsent`; the token is kept"
        case .stopped: "keeps the job; the next start resumes it if it has time left"
        case .revoked: "sends nothing more and records `unsent`"
        case .unsent: "sends nothing"
        case .notConfigured: "tries nothing, raises an alarm and records `unreachable`; the token is kept"
        case .other:
            "uses the status: 403 is a setting, 410 ends a token like Unregistered, 429 waits, 5xx is repeated, others are dropped"
        default: reaction.words
        }
    }

    public var explanation: Explanation {
        switch self {
        case .badCollapseID: Self.ours("the collapse id is empty or has more than 64 bytes")
        case .badDeviceToken:
            Explanation(
                "the token is invalid, or belongs to the other environment", .app,
                "builds from Xcode have sandbox tokens, TestFlight and the App Store production ones. Have the app send `environment` (`mayfly apns send` uses --apns-environment), and the token unchanged, in hexadecimal. "
                    + "`mayfly apns token` checks its shape")
        case .badExpirationDate: Self.ours("apns-expiration is not a number of seconds")
        case .badMessageID: Self.ours("apns-id is not a UUID")
        case .badPriority: Self.ours("the priority is not 1, 5 or 10, or not allowed for the push type")
        case .badTopic:
            Explanation(
                "the topic is not a bundle id", .settings, "set `--apns-bundle-id` to the app's bundle id, without a suffix")
        case .deviceTokenNotForTopic:
            Explanation(
                "the token belongs to another app, or is of another kind: PushKit's, a Live Activity's", .settings,
                "compare `--apns-bundle-id` with the bundle id of the app that registered the token; the app must register PushKit's token for calls only"
            )
        case .duplicateHeaders: Self.ours("a header was sent twice")
        case .idleTimeout: Explanation("Apple closed the connection because it was idle", .nobody, "nothing")
        case .invalidPushType: Self.ours("apns-push-type is unknown to Apple, or doesn't match the payload")
        case .missingDeviceToken: Self.ours("the path has no token")
        case .missingTopic:
            Explanation(
                "no topic was sent, and the certificate implies none", .settings,
                "set `--apns-bundle-id` to the app's bundle id")
        case .payloadEmpty: Self.ours("the payload is empty")
        case .topicDisallowed:
            Explanation(
                "this key or certificate may not push to this topic", .settings,
                "the app and the key must belong to one team; a topic-specific key must name this bundle id (Apple's Certificates, Identifiers & Profiles)"
            )
        case .badCertificate:
            Explanation(
                "the certificate is invalid or revoked", .settings, "make a new one at Apple, or use a token signing key")
        case .badCertificateEnvironment:
            Explanation(
                "the certificate is for the other environment", .settings,
                "use one for both (Apple Push Services), or a token signing key, which is for both")
        case .expiredProviderToken:
            Explanation(
                "the provider token is older than an hour by Apple's clock", .settings,
                "set this machine's clock, which is behind: by it tokens are renewed after 50 minutes")
        case .forbidden:
            Explanation(
                "this provider is not allowed to do this", .settings, "check key, team and topic")
        case .invalidProviderToken:
            Explanation(
                "the provider token is not valid, or a Web Push service refused the VAPID key", .settings,
                "key, key id and team id must belong together (the id is in the .p8 file's name), the key must not be revoked, and this machine's clock must not be over half an hour ahead. `mayfly apns jwt --verify` checks a provider token. Web Push: the subscription was made for another key, or `--vapid-contact` or the clock is wrong"
            )
        case .missingProviderToken:
            Explanation(
                "neither provider token nor certificate was sent", .settings,
                "set `--apns-key-path`, `--apns-key-id` and `--apns-team-id`")
        case .unrelatedKeyIDInToken:
            Explanation(
                "this connection was opened with a key of another team or app", .settings,
                "if this repeats, two keys are used for one topic: use one key for each topic")
        case .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            Explanation(
                "the key is for the other environment", .settings,
                "keys can be limited to sandbox or production: make one for this environment, or for both")
        case .badPath: Self.ours("the path is not /3/device/ and a token")
        case .methodNotAllowed: Self.ours("the method is not POST")
        case .expiredToken:
            Explanation("the token has expired", .app, "the app must register at each launch and send its present token")
        case .unregistered:
            Explanation(
                "the app was removed from the phone or has another token now, or the Live Activity has ended", .app,
                "nothing; an app that is still installed sends its new token when it next makes or joins a room, or with accounts when it next starts"
            )
        case .payloadTooLarge:
            Explanation(
                "the payload is larger than Apple allows", .mayfly,
                "`mayfly policy lint` refuses such templates: please report it")
        case .tooManyProviderTokenUpdates:
            Explanation(
                "the provider token changed more than once in 20 minutes", .settings,
                "use each key on one broker only: two brokers that sign with one key cause this")
        case .tooManyRequests:
            Explanation(
                "too many pushes to one phone", .app,
                "push less often: in rooms `knockThrottleSeconds`, with accounts `tokenPushes` in the policy")
        case .internalServerError: Explanation("Apple's server failed", .apple, "if this repeats, see Apple's system status page")
        case .serviceUnavailable: Explanation("Apple's server is busy", .apple, "if this repeats, see Apple's system status page")
        case .shutdown: Explanation("Apple's server is being shut down", .nobody, "nothing")
        case .unreachable:
            Explanation(
                "no connection to Apple was established before the push's deadline", .apple,
                "let this machine reach api.push.apple.com and api.sandbox.push.apple.com on port 443. Or use port 2197 (--apns-port) or a proxy (--apns-proxy). Nothing on the way may intercept TLS; the broker's log has the cause"
            )
        case .unknown:
            Explanation(
                "the push was sent, but Apple didn't answer before its deadline", .apple, "nothing; Apple may have delivered it")
        case .late:
            Explanation(
                "the push's deadline passed before it was sent", .settings,
                "Apple was slow, or too many pushes waited: see `mayfly_pushes_queued`")
        case .stopped: Explanation("the broker was stopped first", .nobody, "start it within two minutes")
        case .revoked:
            Explanation(
                "the room was closed, or the token replaced, withdrawn or deleted, before the push left", .nobody, "nothing")
        case .notConfigured:
            Explanation(
                "this broker was started without a key or certificate for APNs", .settings,
                "start it with `--apns-key-path`, `--apns-key-id` and `--apns-team-id`; phones need not register again")
        case .other:
            Explanation(
                "Apple's answer is not documented; with status 0 there was no answer: a newer push replaced this one, or the job could not be opened",
                .apple,
                "report it with the status in the log's entry, unless that is 0")
        case .unsent:
            Explanation(
                "the push was never sent: the peer came back, the token was destroyed, the approval ended, or the job expired",
                .nobody,
                "nothing"
            )
        }
    }

    private static func ours(_ means: String) -> Explanation { Explanation(means, .mayfly, "please report it") }
}

extension Reaction {
    /// What Mayfly does, in words.
    public var words: String {
        switch self {
        case .purge: "the token is purged, unless its topic may be at fault"
        case .purgeIfOlder: "the token is purged if it was sealed before Apple's timestamp"
        case .configuration: "an alarm; the token is kept, no further attempt"
        case .drop: "the token is kept, no further attempt"
        case .retry: "again after a wait"
        case .reconnect: "again on a new connection"
        case .renewProviderToken: "again with a new provider token and connection; then an alarm, and again after waits"
        case .reconnectOnce: "again on a new connection, once; then an alarm"
        case .holdToken: "again after a wait, without other pushes to this token"
        }
    }
}
