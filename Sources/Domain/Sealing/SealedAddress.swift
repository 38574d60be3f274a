import Sodium
public import Vocabulary

/// The part of a push address that isn't secret while it is in memory.
public enum Destination: Sendable, Hashable {
    case apns(AppID, PushEnvironment)
    /// Web Push, and the number of the VAPID key that the subscription was made for.
    case webPush(key: UInt8)
    /// Another push service (3: FCM), to which this release can't send.
    case other(service: UInt8)
}

/// A push address. At rest it is sealed as a whole, so that a row shows neither the app nor the push service.
public struct PushAddress: Sendable, Equatable {
    public let destination: Destination
    /// The device token at Apple, 1 to 100 bytes, or `auth[16] || p256dh[65] || endpoint` of Web Push, 82 to 578 bytes. Empty for another service.
    public let token: Secret

    public init(_ destination: Destination, token: Secret) {
        self.destination = destination
        self.token = token
    }

    /// The lengths of a Web Push address.
    public static let subscriptionCounts = DeviceName.subscriptionKeys + 1...DeviceName.subscriptionKeys + 497

    public var device: DeviceName {
        if case .webPush = destination { DeviceName(subscription: token) } else { DeviceName(token: token) }
    }
}

/// The name of a device at its push service: its APNs token, or the endpoint of its subscription. New keys of a subscription don't change the name.
public struct DeviceName: Sendable, Equatable {
    private let secret: Secret
    private let start: Int

    /// The bytes of a Web Push address before its endpoint.
    static let subscriptionKeys = 81

    /// A device token at Apple.
    public init(token: Secret) { (secret, start) = (token, 0) }

    /// - Parameter subscription: a Web Push address.
    public init(subscription: Secret) { (secret, start) = (subscription, min(Self.subscriptionKeys, subscription.count)) }

    public func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try secret.withBytes { bytes throws(Failure) in try body(bytes.extracting(start...)) }
    }

    public static func == (left: DeviceName, right: DeviceName) -> Bool {
        left.withBytes { left in right.withBytes { right in Sodium.equal(left, right) } }
    }
}

/// The length of an address's padded plaintext, in bytes. All of a deployment's addresses are sealed with the same one, since the length of one
/// of its own would name the push service.
public enum AddressSize: Int, Sendable, CaseIterable {
    /// Holds any address at Apple.
    case apnsOnly = 160
    /// Also holds a Web Push subscription whose endpoint has up to 505 bytes. SQLite keeps a registration of this size on one page.
    case anyService = 608

    static let largest = anyService.rawValue

    /// The length of a sealed address.
    public var sealedCount: Int { rawValue + SealedBox.overhead }

    /// Returns the length for a token of this kind. Live Activities exist at Apple only.
    func padding(_ kind: TokenKind) -> AddressSize { kind == .liveActivity ? .apnsOnly : self }
}

extension AppID {
    /// The first 16 bytes of `D(0, "app", bundle id)`.
    public init(bundleID: String) {
        var derivation = Derivation(.app)
        derivation.add(bundleID.utf8.span)
        let digest = derivation.digest()
        self = digest.withBytes { AppID($0, at: 0) }
    }
}

// The plaintext that tokens and jobs share: `sealedAtMs u64be || id[16] || service u8 || variant u8 || 0 || length u16be || address`, padded.
extension KeyRing {
    private static let apns: UInt8 = 1
    private static let webPush: UInt8 = 2
    /// The bytes before the address.
    private static let headCount = 29

    /// - Parameter id: a token's ref, or a job's handle.
    func sealAddress(
        _ address: PushAddress, _ sealedAtMs: UInt64, _ id: some OpaqueID, _ size: AddressSize, associatedData: [UInt8],
        key: consuming Slot
    ) throws(SealingError) -> [UInt8] {
        // A node that hasn't started again since Web Push was enabled may get such an address from another one's row.
        let size = if case .webPush = address.destination { AddressSize.anyService } else { size }
        let plaintext = try Arena.plaintexts.take()
        plaintext.withMutableBytes(size.rawValue) { plaintext in
            plaintext.write(bigEndian: sealedAtMs, at: 0)
            plaintext.write(bigEndian: id.high, at: 8)
            plaintext.write(bigEndian: id.low, at: 16)
            var count = Self.headCount
            switch address.destination {
            case .apns(let app, let environment):
                precondition((1...100).contains(address.token.count), "a token of 1 to 100 bytes")
                (plaintext[24], plaintext[25]) = (Self.apns, environment.rawValue)
                plaintext.write(bigEndian: app.high, at: count)
                plaintext.write(bigEndian: app.low, at: count + 8)
                address.token.withBytes { plaintext.write($0, at: count + AppID.count) }
                count += AppID.count + address.token.count
            case .webPush(let key):
                precondition(PushAddress.subscriptionCounts.contains(address.token.count), "a subscription")
                (plaintext[24], plaintext[25]) = (Self.webPush, key)
                address.token.withBytes { plaintext.write($0, at: count) }
                count += address.token.count
            case .other(let service):
                // This release can't send to the address, so the job doesn't need it.
                (plaintext[24], plaintext[25]) = (service, 0)
            }
            plaintext[26] = 0
            plaintext.write(bigEndian: UInt16(count - Self.headCount), at: 27)
            _ = Sodium.pad(&plaintext, count: count, block: size.rawValue)
        }
        return SealedBox.seal(
            plaintext, count: size.rawValue, associatedData: associatedData, nonce: nonce(), key: key)
    }

    /// Opens an address of either size.
    /// - Throws: `.doesNotOpen` if the sealed bytes or the address are invalid; `.outOf` if no slot is free.
    func openAddress<ID: OpaqueID>(
        _ sealed: Span<UInt8>, associatedData: [UInt8], key: consuming Slot, for purpose: Arena.Purpose = .anything
    ) throws(SealingError) -> (address: PushAddress, sealedAtMs: UInt64, id: ID) {
        guard let size = AddressSize(rawValue: sealed.count - SealedBox.overhead)?.rawValue else { throw .doesNotOpen }
        let plaintext = try SealedBox.open(sealed, count: size, associatedData: associatedData, key: key, in: .plaintexts)
        return try plaintext.withBytes(size) { bytes throws(SealingError) in
            let end = Self.headCount + Int(bytes[27]) << 8 + Int(bytes[28])
            guard bytes[26] == 0, Sodium.unpaddedCount(bytes, block: size) == end else { throw .doesNotOpen }
            let address = try Self.address(
                service: bytes[24], variant: bytes[25], bytes.extracting(Self.headCount..<end), purpose)
            return (address, bytes.bigEndian64(at: 0), ID(bytes, at: 8))
        }
    }

    private static func address(
        service: UInt8, variant: UInt8, _ bytes: Span<UInt8>, _ purpose: Arena.Purpose
    ) throws(SealingError) -> PushAddress {
        if service == webPush {
            guard PushAddress.subscriptionCounts.contains(bytes.count) else { throw .doesNotOpen }
            return PushAddress(.webPush(key: variant), token: try Secret(copying: bytes, for: purpose))
        }
        guard service == apns else {
            return PushAddress(.other(service: service), token: try Secret(count: 0, for: purpose) { _ in })
        }
        guard let environment = PushEnvironment(rawValue: variant),
            (1...100).contains(bytes.count - AppID.count)
        else { throw .doesNotOpen }
        return PushAddress(
            .apns(AppID(bytes, at: 0), environment),
            token: try Secret(copying: bytes.extracting(AppID.count..<bytes.count), for: purpose))
    }
}
