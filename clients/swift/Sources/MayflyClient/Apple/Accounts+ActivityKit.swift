#if canImport(ActivityKit) && os(iOS)
    import ActivityKit

    extension Accounts {
        /// Registers each token that Apple gives a Live Activity, until the activity ends or the task is cancelled. Compiled on iOS only.
        ///
        /// - Parameters:
        ///   - activity: one that was requested with `pushType: .token`.
        ///   - sessionID: the session that the activity shows, 1 to 128 bytes.
        ///   - previous: the activity's token until now, if an earlier call registered one.
        public func registerTokens<Attributes: ActivityAttributes>(
            of activity: Activity<Attributes>, sessionID: String, previous: PushToken? = nil
        ) async throws {
            var previous = previous
            for await data in activity.pushTokenUpdates {
                let token = PushToken(data)
                var backoff = Backoff()
                // A registration may be repeated: the same token again changes nothing.
                while try await !isRegistered(token, activity.id, sessionID, previous) {
                    try await Task.sleep(for: backoff.wait())
                }
                previous = token
            }
        }

        /// Returns false if the broker can't be reached.
        private func isRegistered(
            _ token: PushToken, _ activityID: String, _ sessionID: String, _ previous: PushToken?
        ) async throws -> Bool {
            do {
                _ = try await registerActivity(token, activityID: activityID, sessionID: sessionID, previous: previous)
                return true
            } catch MayflyError.unreachable, MayflyError.noAnswer {
                return false
            }
        }
    }
#endif
