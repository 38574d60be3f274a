#if canImport(ActivityKit) && os(iOS) || MAYFLY_APPLE_STUBS
    import ActivityKit
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    /// A session's Live Activity. The names stay on the phone. Compiled on iOS only.
    public struct SessionAttributes: ActivityAttributes, Hashable, Sendable {
        public typealias ContentState = SessionContentState

        public let sessionID: String
        /// The phone's name of the session.
        public let name: String

        public init(sessionID: String, name: String) { (self.sessionID, self.name) = (sessionID, name) }
    }

    /// The Live Activities of sessions, by the session's id. They go on when the app ends, and are found again at the next launch.
    ///
    /// Needs `NSSupportsLiveActivities` in Info.plist, and a widget that shows ``SessionAttributes``. Compiled on iOS only.
    public enum SessionActivities {
        /// The sessions that have one.
        public static var sessionIDs: [String] { Activity<SessionAttributes>.activities.map(\.attributes.sessionID) }

        /// Starts one, in the foreground only. Returns false if the user turned Live Activities off.
        ///
        /// - Throws: what ActivityKit throws, for instance if there are too many.
        public static func start(
            _ attributes: SessionAttributes, state: SessionContentState = SessionContentState(status: .processing)
        ) throws -> Bool {
            guard ActivityAuthorizationInfo().areActivitiesEnabled else { return false }
            guard !sessionIDs.contains(attributes.sessionID) else { return true }
            _ = try Activity.request(
                attributes: attributes, content: ActivityContent(state: state, staleDate: nil), pushType: .token)
            return true
        }

        /// Ends it here, such as after a ``CompanionNotification/Kind/handoff(to:)``. Delete its ``Registration`` at the broker.
        public static func end(_ sessionID: String) async {
            for activity in Activity<SessionAttributes>.activities where activity.attributes.sessionID == sessionID {
                await activity.end(nil, dismissalPolicy: .immediate)
            }
        }
    }

    extension Accounts {
        /// Registers each token that Apple gives a session's Live Activity, until the activity ends or the task is cancelled.
        ///
        /// Call it after the start of the activity, and for each of ``SessionActivities/sessionIDs`` at each launch.
        /// - Parameters:
        ///   - sessionID: 1 to 128 bytes.
        ///   - previous: the last token that was registered, perhaps by an earlier launch. Its registration and waiting updates move to the new token.
        ///   - registered: gets each token and its registration. Keep both: the registration for the logout, the token for the next launch.
        public func registerTokens(
            ofSession sessionID: String, previous: PushToken? = nil,
            registered: @Sendable (PushToken, Registration) async -> Void = { _, _ in }
        ) async throws {
            let activities = Activity<SessionAttributes>.activities
            guard let activity = activities.first(where: { $0.attributes.sessionID == sessionID }) else { return }
            var previous = previous
            for await data in activity.pushTokenUpdates {
                let token = PushToken(data)
                let other = previous == token ? nil : previous
                await registered(token, try await register(token, activity.id, sessionID, other))
                previous = token
            }
        }

        /// A registration may be repeated: the same token again changes nothing.
        private func register(
            _ token: PushToken, _ activityID: String, _ sessionID: String, _ previous: PushToken?
        ) async throws -> Registration {
            var backoff = Backoff()
            while true {
                do {
                    return try await registerActivity(token, activityID: activityID, sessionID: sessionID, previous: previous)
                } catch let error as MayflyError {
                    switch error {
                    case .unreachable, .noAnswer: break
                    // A proxy whose broker is down for a moment.
                    case .unexpectedAnswer(status: 408), .unexpectedAnswer(status: 429), .unexpectedAnswer(status: 500...): break
                    case .refused(let refusal) where refusal.retryAfter != nil: break
                    default: throw error
                    }
                    try await Task.sleep(for: backoff.wait(atLeast: error.refusal?.retryAfter))
                }
            }
        }
    }
#endif
