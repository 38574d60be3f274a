#if canImport(PushKit) && canImport(CallKit) && os(iOS) || MAYFLY_APPLE_STUBS
    import AVFAudio
    import CallKit
    import PushKit
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    /// What happens with this phone's calls.
    public enum PhoneEvent: Sendable {
        /// PushKit gave a token, at each launch or a new one: ``Accounts/registerPhone(_:uid:previous:)``.
        case token(PushToken)
        /// The token is no longer valid: ``Accounts/deletePhones(uid:token:)``.
        case tokenInvalid
        /// The phone rings. Ask the calling service whether the call still waits; if not, ``PhoneCalls/end(_:_:)``.
        case ringing(id: UUID, CallNotification)
        /// iOS doesn't show the call. The error is CallKit's: a `CXErrorCodeIncomingCallError` says, for instance, that the caller is blocked.
        case notShown(CallNotification, any Error)
        case answered(id: UUID)
        /// The user pressed the button on iOS's screen of the call.
        case muted(id: UUID, Bool)
        /// The user hung up, or refused the call.
        case hungUp(id: UUID)
        /// The audio session may be used from now on, and no earlier.
        case audioStarted
        case audioStopped
        /// iOS ended all calls.
        case reset
    }

    /// PushKit and CallKit for an app that rings: each push is reported to CallKit at once, as iOS demands, also one of an unknown caller.
    ///
    /// Make it at each launch before `didFinishLaunching` ends, since iOS starts the app for a call. Needs the background mode `voip`. Compiled on iOS only.
    @MainActor
    public final class PhoneCalls: NSObject, PKPushRegistryDelegate, CXProviderDelegate {
        /// Events in order. Only one loop may read them.
        public nonisolated let events: AsyncStream<PhoneEvent>
        private nonisolated let continuation: AsyncStream<PhoneEvent>.Continuation
        private nonisolated let callers: @Sendable () -> HandleTable
        private nonisolated let name: @Sendable (_ uid: String) -> String?
        private let unknownCaller: String
        private let provider: CXProvider
        private let registry = PKPushRegistry(queue: .main)

        /// - Parameters:
        ///   - callers: who may call. It is read at each push, from a storage that a locked phone can read.
        ///   - unknownCaller: the text for others, in the user's language.
        ///   - name: the phone's name of a caller.
        public init(
            configuration: CXProviderConfiguration, callers: @escaping @Sendable () -> HandleTable, unknownCaller: String,
            name: @escaping @Sendable (_ uid: String) -> String?
        ) {
            (events, continuation) = AsyncStream.makeStream()
            (self.callers, self.name, self.unknownCaller) = (callers, name, unknownCaller)
            provider = CXProvider(configuration: configuration)
            super.init()
            provider.setDelegate(self, queue: nil)
            registry.delegate = self
            registry.desiredPushTypes = [.voIP]
        }

        /// Ends a call on the phone's screen: the other side hung up, or nobody waits.
        public func end(_ id: UUID, _ reason: CXCallEndedReason) { provider.reportCall(with: id, endedAt: nil, reason: reason) }

        private func report(_ call: CallNotification, done: @escaping @Sendable () -> Void) {
            let (id, update) = (UUID(), CXCallUpdate())
            update.localizedCallerName = call.caller.flatMap(name) ?? unknownCaller
            update.remoteHandle = CXHandle(type: .generic, value: call.callerHandle)
            update.hasVideo = call.media == .video
            // iOS would show buttons that no event reports.
            (update.supportsHolding, update.supportsGrouping, update.supportsUngrouping) = (false, false, false)
            update.supportsDTMF = false
            // iOS calls this on a queue of its own.
            provider.reportNewIncomingCall(with: id, update: update) { @Sendable [continuation] error in
                continuation.yield(error.map { .notShown(call, $0) } ?? .ringing(id: id, call))
                done()
            }
        }

        // MARK: PushKit, on the main queue

        public nonisolated func pushRegistry(
            _ registry: PKPushRegistry, didUpdate pushCredentials: PKPushCredentials, for type: PKPushType
        ) {
            continuation.yield(.token(PushToken(pushCredentials)))
        }

        public nonisolated func pushRegistry(_ registry: PKPushRegistry, didInvalidatePushTokenFor type: PKPushType) {
            continuation.yield(.tokenInvalid)
        }

        public nonisolated func pushRegistry(
            _ registry: PKPushRegistry, didReceiveIncomingPushWith payload: PKPushPayload, for type: PKPushType,
            completion: @escaping () -> Void
        ) {
            let call = CallNotification(payload: payload.dictionaryPayload, callers: callers())
            let completion = Completion(run: completion)
            // Report the call before this method returns. Otherwise iOS terminates the app.
            MainActor.assumeIsolated { report(call) { completion.run() } }
        }

        private struct Completion: @unchecked Sendable { let run: () -> Void }

        // MARK: CallKit, on the main queue

        public nonisolated func providerDidReset(_ provider: CXProvider) { continuation.yield(.reset) }

        public nonisolated func provider(_ provider: CXProvider, perform action: CXAnswerCallAction) {
            continuation.yield(.answered(id: action.callUUID))
            action.fulfill()
        }

        public nonisolated func provider(_ provider: CXProvider, perform action: CXSetMutedCallAction) {
            continuation.yield(.muted(id: action.callUUID, action.isMuted))
            action.fulfill()
        }

        public nonisolated func provider(_ provider: CXProvider, perform action: CXEndCallAction) {
            continuation.yield(.hungUp(id: action.callUUID))
            action.fulfill()
        }

        public nonisolated func provider(_ provider: CXProvider, didActivate audioSession: AVAudioSession) {
            continuation.yield(.audioStarted)
        }

        public nonisolated func provider(_ provider: CXProvider, didDeactivate audioSession: AVAudioSession) {
            continuation.yield(.audioStopped)
        }
    }
#endif
