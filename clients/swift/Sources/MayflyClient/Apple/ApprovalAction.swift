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
        /// Returns nil if it was no such button, and false if the answer came too late. Throws as ``respond(to:approved:from:)``.
        /// - Parameters:
        ///   - action: `actionIdentifier` of the response.
        ///   - push: the notification's.
        ///   - device: this phone's token, so that it gets no clearing push.
        public func respond(
            _ action: String, to push: ReceivedPush, from device: PushToken? = nil
        ) async throws -> Bool? {
            guard let action = ApprovalAction(rawValue: action),
                case .approval(let request, _) = CompanionNotification(payload: push.payload, sessions: HandleTable())?.kind
            else { return nil }
            let isInTime = try await respond(to: request, approved: action == .allow, from: device)
            await CompanionNotification.clearApproval(request)
            return isInTime
        }
    }
#endif
