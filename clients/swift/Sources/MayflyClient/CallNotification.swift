/// An incoming call. iOS ends an app that doesn't report such a push to CallKit, whatever is in it, so reading one never fails.
public struct CallNotification: Hashable, Sendable {
    public enum Media: BrokerWord {
        case audio, video
        /// A word of a later broker, or none.
        case unknown(String)

        private static let words = Words<Self>([.audio, .video])

        public init(rawValue: String) { self = Self.words[rawValue] ?? .unknown(rawValue) }

        public var rawValue: String {
            switch self {
            case .audio: "audio"
            case .video: "video"
            case .unknown(let word): word
            }
        }
    }

    public let media: Media
    /// What the push calls the caller. Empty if the push is no broker's.
    public let callerHandle: String
    /// What the push calls the call. Empty if the push is no broker's.
    public let sessionHandle: String
    /// The caller's `uid`. Nil if this phone doesn't know it.
    public let caller: String?

    /// Reads a push of PushKit.
    ///
    /// - Parameters:
    ///   - payload: `dictionaryPayload` of the push.
    ///   - callers: who may call: ``Registration/table(_:_:)`` of the kind ``Registration/Kind/uid``.
    public init(payload: [AnyHashable: Any], callers: HandleTable) {
        func text(_ key: String) -> String { payload[key] as? String ?? "" }
        media = Media(rawValue: text("callType"))
        callerHandle = text("callerUid")
        sessionHandle = text("sessionId")
        caller = callers.name(callerHandle)
    }

    /// Whether the push is about this call of the calling service.
    ///
    /// - Parameter registration: the phone's.
    public func isAbout(_ sessionID: String, _ registration: Registration) -> Bool {
        registration.handle(.session, sessionID) == sessionHandle
    }
}
