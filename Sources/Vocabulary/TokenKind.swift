/// What a push token is for at Apple. The raw value is in rows and bound into seals.
public enum TokenKind: UInt8, Sendable, CaseIterable {
    case alert = 1
    case voip = 2
    case liveActivity = 3
}

/// Which of Apple's two services knows a token. The raw value is in rows and bound into seals.
public enum PushEnvironment: UInt8, Sendable, CaseIterable {
    case production = 1
    case sandbox = 2
}
