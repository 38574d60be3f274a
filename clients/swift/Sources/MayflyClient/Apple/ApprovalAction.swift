#if canImport(UserNotifications) || MAYFLY_APPLE_STUBS
    import UserNotifications
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    /// The buttons of an approval's notification. Compiled on Apple's systems only.
    public enum ApprovalAction: String, CaseIterable, Sendable {
        case allow = "MAYFLY_ALLOW"
        case deny = "MAYFLY_DENY"

        /// The category of approvals, for `setNotificationCategories`. The phone has to be unlocked to allow.
        ///
        /// - Parameters:
        ///   - allow: the button's text, in the user's language.
        ///   - deny: the other button's.
        public static func category(allow: String, deny: String) -> UNNotificationCategory {
            UNNotificationCategory(
                identifier: CompanionCategory.approval.rawValue,
                actions: [
                    UNNotificationAction(
                        identifier: ApprovalAction.allow.rawValue, title: allow, options: [.authenticationRequired]),
                    UNNotificationAction(identifier: ApprovalAction.deny.rawValue, title: deny, options: [.destructive]),
                ],
                intentIdentifiers: [], options: [])
        }
    }

    extension Accounts {
        /// Answers an approval by a button of its notification, and removes the notification.
        ///
        /// Returns nil if it was no such button, and false if the answer came too late. If the broker's answer is lost, it asks what became of the
        /// approval. Throws as ``respond(to:approved:from:)``. iOS has removed the notification by then, so show another one.
        /// - Parameters:
        ///   - action: `actionIdentifier` of the response.
        ///   - push: the notification's.
        ///   - device: this phone's token, so that it gets no clearing push.
        ///   - limit: then it throws ``MayflyError/noAnswer(_:)``. iOS gives an app about 30 seconds for a button.
        public func respond(
            _ action: String, to push: ReceivedPush, from device: PushToken? = nil, within limit: Duration = .seconds(20)
        ) async throws -> Bool? {
            guard let action = ApprovalAction(rawValue: action),
                case .approval(let request, _) = CompanionNotification(payload: push.payload, sessions: HandleTable())?.kind
            else { return nil }
            let isInTime = try await withThrowingTaskGroup(of: Bool.self) { group in
                group.addTask { try await answer(request, isApproved: action == .allow, from: device) }
                group.addTask {
                    try await Task.sleep(for: limit)
                    throw MayflyError.noAnswer("no answer to the approval in \(limit)")
                }
                defer { group.cancelAll() }
                return try await group.next()!
            }
            await CompanionNotification.clearApproval(request)
            return isInTime
        }

        /// A lost answer says nothing: the approval itself shows whether the call arrived.
        private func answer(_ request: String, isApproved: Bool, from device: PushToken?) async throws -> Bool {
            do {
                return try await respond(to: request, approved: isApproved, from: device)
            } catch let error as MayflyError {
                guard case .noAnswer = error else { throw error }
                let status = try await approval(request).status
                guard status != .pending else { throw error }
                return status == (isApproved ? .approved : .denied)
            }
        }
    }
#endif
