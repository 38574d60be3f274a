public import Sealing
public import Vocabulary

/// One notification for one device, ready to be sent.
public struct Push: Sendable {
    /// A lower-case UUID, the same for every attempt: Apple drops what it has seen.
    public var apnsID: String
    public var token: Secret
    public var environment: PushEnvironment
    public var topic: String
    public var type: PushType
    /// 10 immediate, 5 power-aware, 1 never wakes the device.
    public var priority: UInt8
    /// `apns-expiration` in unix seconds. 0: one attempt, nothing is stored. nil: Apple stores it for up to 30 days.
    public var expirationS: UInt64?
    /// At most 64 bytes.
    public var collapseID: String?
    /// UTF-8 JSON.
    public var payload: [UInt8]
    /// When the token was sealed, unix ms: an older 410 does not concern it.
    public var sealedAtMs: UInt64
    /// When the courier gives up, unix ms.
    public var deadlineMs: UInt64
    /// Asked before each attempt: false once the token is not to be used any more.
    public var isWanted: @Sendable () -> Bool

    public init(
        apnsID: String, token: Secret, environment: PushEnvironment, topic: String, type: PushType = .alert, priority: UInt8 = 10,
        expirationS: UInt64?, collapseID: String? = nil, payload: [UInt8], sealedAtMs: UInt64, deadlineMs: UInt64,
        isWanted: @escaping @Sendable () -> Bool = { true }
    ) {
        self.apnsID = apnsID
        self.token = token
        self.environment = environment
        self.topic = topic
        self.type = type
        self.priority = priority
        self.expirationS = expirationS
        self.collapseID = collapseID
        self.payload = payload
        self.sealedAtMs = sealedAtMs
        self.deadlineMs = deadlineMs
        self.isWanted = isWanted
    }

    /// What Apple would refuse, found before it is sent: refusals make Apple disconnect.
    var fault: APNsReason? {
        if !Self.isLowerCaseUUID(apnsID) { return .badMessageID }
        if !(1...100).contains(token.count) { return .badDeviceToken }
        if topic.isEmpty { return .missingTopic }
        if topic.utf8.count > 255 || !Self.isVisible(topic) { return .badTopic }
        if ![1, 5, 10].contains(priority) { return .badPriority }
        if let collapseID {
            // A header's value: Apple counts bytes; control characters would end it.
            if !(1...64).contains(collapseID.utf8.count) || !Self.isVisible(collapseID, beyondASCII: true) {
                return .badCollapseID
            }
        }
        if payload.isEmpty { return .payloadEmpty }
        if payload.count > type.payloadLimit { return .payloadTooLarge }
        return nil
    }

    private static func isVisible(_ text: String, beyondASCII: Bool = false) -> Bool {
        let bytes = text.utf8.span
        for index in bytes.indices {
            let byte = bytes[index]
            if byte <= 0x20 || byte == 0x7f || byte > 0x7f && !beyondASCII { return false }
        }
        return true
    }

    private static func isLowerCaseUUID(_ text: String) -> Bool {
        let bytes = text.utf8.span
        guard bytes.count == 36 else { return false }
        let hyphen = UInt8(ascii: "-")
        guard bytes[8] == hyphen, bytes[13] == hyphen, bytes[18] == hyphen, bytes[23] == hyphen else { return false }
        var digits = 0
        for index in bytes.indices {
            switch bytes[index] {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"): digits += 1
            default: break
            }
        }
        return digits == 32
    }
}
