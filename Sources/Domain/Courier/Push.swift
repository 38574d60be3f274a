public import Sealing
import Sodium
public import Vocabulary

/// One notification for one device.
public struct Push: Sendable {
    /// A lower-case UUID. It stays the same for all attempts, so that Apple drops duplicates.
    public var apnsID: String
    public var address: PushAddress
    public var type: PushType
    /// 10 immediate, 5 power-aware, 1 never wakes the device.
    public var priority: UInt8
    /// `apns-expiration` in Unix seconds. With 0, Apple stores nothing. Nil lets Apple store the push for up to 30 days.
    public var expirationS: UInt64?
    /// At most 64 bytes.
    public var collapseID: String?
    /// UTF-8 JSON.
    public var payload: [UInt8]
    /// When the address was sealed, in Unix ms. A 410 with an earlier timestamp doesn't apply.
    public var sealedAtMs: UInt64
    /// When the courier gives up, in Unix ms.
    public var deadlineMs: UInt64
    /// True for a push whose sender waits for the result. It ends when Apple refuses the renewed provider token; others retry until their deadline.
    public var isTrial = false
    /// How long a Web Push service may store it, in seconds: the template's lifetime.
    public var ttlS = 0
    /// When the address expires, in Unix ms. No service may store the push for longer.
    public var addressEndsMs = UInt64.max
    /// Called before each attempt. Returns false if the push is no longer wanted.
    public var isWanted: @Sendable () -> Bool

    public init(
        apnsID: String, address: PushAddress, type: PushType = .alert, priority: UInt8 = 10,
        expirationS: UInt64?, collapseID: String? = nil, payload: [UInt8], sealedAtMs: UInt64, deadlineMs: UInt64,
        isWanted: @escaping @Sendable () -> Bool = { true }
    ) {
        self.apnsID = apnsID
        self.address = address
        self.type = type
        self.priority = priority
        self.expirationS = expirationS
        self.collapseID = collapseID
        self.payload = payload
        self.sealedAtMs = sealedAtMs
        self.deadlineMs = deadlineMs
        self.isWanted = isWanted
    }
}

extension Push {
    /// The values of `TTL` (RFC 8030, 5.2). Few, so that none is a message's own.
    private static let timesToLiveS: [UInt64] = [86_400, 3_600, 120, 60, 30]

    /// Returns the largest of these that is neither above the template's lifetime nor above what is left of the address's, or 0.
    func timeToLiveS(nowMs: UInt64) -> UInt64 {
        let left = min(UInt64(clamping: ttlS), (addressEndsMs - min(nowMs, addressEndsMs)) / 1_000)
        return Self.timesToLiveS.first { $0 <= left } ?? 0
    }

    /// Returns a new `apns-id` (RFC 9562, version 4).
    public static func randomID() -> String {
        var bytes = Sodium.randomBytes(16)
        bytes[6] = bytes[6] & 0x0f | 0x40
        bytes[8] = bytes[8] & 0x3f | 0x80
        let digits = Array(Hex.encode(bytes.span))
        return [0..<8, 8..<12, 12..<16, 16..<20, 20..<32].map { String(digits[$0]) }.joined(separator: "-")
    }
}

/// The final result of a push.
public enum Outcome: Sendable, Equatable {
    /// The push service accepted the push.
    case delivered
    /// `status` is that of the push service's last response, as recorded (see `WebPushAnswer`). 0 without an answer.
    case failed(status: Int, reason: PushReason, verdict: Verdict)
}

/// A decision about the token of a failed push.
public enum Verdict: Sendable, Equatable {
    case keep
    /// Purge the token if it was sealed at or before this time (Unix ms), or unconditionally if nil.
    case purge(ifSealedBefore: UInt64?)
    /// Keep the token. An operator has to fix keys, certificate, topic or environment.
    case configuration
}
