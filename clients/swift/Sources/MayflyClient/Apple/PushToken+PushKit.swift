#if canImport(PushKit)
    import PushKit

    extension PushToken {
        /// Takes PushKit's token, for ``Accounts/registerPhone(_:uid:previous:)``. Compiled on Apple's systems only.
        public init(_ credentials: PKPushCredentials) { self.init(credentials.token) }
    }
#endif
