@_exported import Foundation

// Stands for Apple's PushKit on Linux. What begins with `stub` plays iOS. As in Apple's SDK, the classes are not Sendable.

public struct PKPushType: RawRepresentable, Hashable, Sendable {
    public var rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
    public static let voIP = PKPushType(rawValue: "PKPushTypeVoIP")
}

open class PKPushCredentials: NSObject {
    public let type: PKPushType
    public let token: Data
    public init(stub token: Data) { (type, self.token) = (.voIP, token) }
}

open class PKPushPayload: NSObject {
    public let type: PKPushType
    public let dictionaryPayload: [AnyHashable: Any]
    public init(stub payload: [AnyHashable: Any]) { (type, dictionaryPayload) = (.voIP, payload) }
}

public protocol PKPushRegistryDelegate: NSObjectProtocol {
    func pushRegistry(_ registry: PKPushRegistry, didUpdate pushCredentials: PKPushCredentials, for type: PKPushType)
    /// Optional at Apple's.
    func pushRegistry(
        _ registry: PKPushRegistry, didReceiveIncomingPushWith payload: PKPushPayload, for type: PKPushType,
        completion: @escaping () -> Void)
    /// Optional at Apple's.
    func pushRegistry(_ registry: PKPushRegistry, didInvalidatePushTokenFor type: PKPushType)
}

extension PKPushRegistryDelegate {
    public func pushRegistry(
        _ registry: PKPushRegistry, didReceiveIncomingPushWith payload: PKPushPayload, for type: PKPushType,
        completion: @escaping () -> Void
    ) { completion() }
    public func pushRegistry(_ registry: PKPushRegistry, didInvalidatePushTokenFor type: PKPushType) {}
}

open class PKPushRegistry: NSObject {
    public weak var delegate: (any PKPushRegistryDelegate)?
    public var desiredPushTypes: Set<PKPushType>?
    public let stubQueue: DispatchQueue?

    public init(queue: DispatchQueue?) {
        stubQueue = queue
        super.init()
        Self.stubLast = self
    }

    /// The app's.
    nonisolated(unsafe) public static var stubLast: PKPushRegistry?

    open func pushToken(for type: PKPushType) -> Data? { nil }
}
