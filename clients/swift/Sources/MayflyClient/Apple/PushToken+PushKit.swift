#if canImport(PushKit) || MAYFLY_APPLE_STUBS
    import PushKit
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    extension PushToken {
        /// Takes PushKit's token, for ``Accounts/registerPhone(_:uid:previous:)``. Compiled on Apple's systems only.
        public init(_ credentials: PKPushCredentials) { self.init(credentials.token) }
    }
#endif
