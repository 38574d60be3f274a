#if canImport(ActivityKit) && os(iOS)
    import ActivityKit

    extension Accounts {
        /// Registers each token that Apple gives a Live Activity, until the activity ends or the task is cancelled. Compiled on iOS only.
        ///
        /// - Parameters:
        ///   - activity: one that was requested with `pushType: .token`.
        ///   - sessionID: the session that the activity shows, 1 to 128 bytes.
        public func registerTokens<Attributes: ActivityAttributes>(
            of activity: Activity<Attributes>, sessionID: String
        ) async throws {
            var previous: PushToken?
            for await data in activity.pushTokenUpdates {
                let token = PushToken(data)
                _ = try await registerActivity(token, activityID: activity.id, sessionID: sessionID, previous: previous)
                previous = token
            }
        }
    }
#endif
