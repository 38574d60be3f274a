import AVFAudio
@_exported import Foundation

// Stands for Apple's CallKit on Linux. What begins with `stub` plays iOS. As in Apple's SDK, the classes are not Sendable.

open class CXHandle: NSObject {
    public enum HandleType: Int, Sendable {
        case generic = 1
        case phoneNumber, emailAddress
    }
    public let type: HandleType
    public let value: String
    public init(type: HandleType, value: String) { (self.type, self.value) = (type, value) }
}

open class CXCallUpdate: NSObject {
    public var remoteHandle: CXHandle?
    public var localizedCallerName: String?
    public var hasVideo = false
    public var supportsHolding = true
    public var supportsGrouping = true
    public var supportsUngrouping = true
    public var supportsDTMF = true
}

open class CXProviderConfiguration: NSObject {
    public var maximumCallGroups = 2
    public var maximumCallsPerCallGroup = 5
    public var supportsVideo = false
    public var includesCallsInRecents = true
    public var supportedHandleTypes: Set<CXHandle.HandleType> = []
    public override init() {}
}

public enum CXCallEndedReason: Int, Sendable {
    case failed = 1
    case remoteEnded, unanswered, answeredElsewhere, declinedElsewhere
}

open class CXAction: NSObject {
    public let uuid = UUID()
    public private(set) var isComplete = false
    public private(set) var stubHasFailed = false
    open func fulfill() { isComplete = true }
    open func fail() { (isComplete, stubHasFailed) = (true, true) }
}

open class CXCallAction: CXAction {
    public let callUUID: UUID
    public init(call callUUID: UUID) { self.callUUID = callUUID }
}

open class CXAnswerCallAction: CXCallAction {}
open class CXEndCallAction: CXCallAction {}

open class CXSetMutedCallAction: CXCallAction {
    public var isMuted: Bool
    public init(call callUUID: UUID, muted: Bool) {
        isMuted = muted
        super.init(call: callUUID)
    }
}

public protocol CXProviderDelegate: NSObjectProtocol {
    func providerDidReset(_ provider: CXProvider)
    // Optional at Apple's.
    func provider(_ provider: CXProvider, perform action: CXAnswerCallAction)
    func provider(_ provider: CXProvider, perform action: CXEndCallAction)
    func provider(_ provider: CXProvider, perform action: CXSetMutedCallAction)
    func provider(_ provider: CXProvider, didActivate audioSession: AVAudioSession)
    func provider(_ provider: CXProvider, didDeactivate audioSession: AVAudioSession)
}

extension CXProviderDelegate {
    public func provider(_ provider: CXProvider, perform action: CXAnswerCallAction) { action.fail() }
    public func provider(_ provider: CXProvider, perform action: CXEndCallAction) { action.fail() }
    public func provider(_ provider: CXProvider, perform action: CXSetMutedCallAction) { action.fail() }
    public func provider(_ provider: CXProvider, didActivate audioSession: AVAudioSession) {}
    public func provider(_ provider: CXProvider, didDeactivate audioSession: AVAudioSession) {}
}

open class CXProvider: NSObject {
    public private(set) var configuration: CXProviderConfiguration
    public private(set) weak var stubDelegate: (any CXProviderDelegate)?

    public init(configuration: CXProviderConfiguration) {
        self.configuration = configuration
        super.init()
        Self.stubLast = self
    }

    /// The app's.
    nonisolated(unsafe) public static var stubLast: CXProvider?

    open func setDelegate(_ delegate: (any CXProviderDelegate)?, queue: DispatchQueue?) { stubDelegate = delegate }

    open func reportNewIncomingCall(
        with id: UUID, update: CXCallUpdate, completion: @escaping @Sendable ((any Error)?) -> Void
    ) {
        let error = stubRefusal
        if error == nil { stubCalls.append((id, update)) }
        DispatchQueue.main.async { completion(error) }
    }

    open func reportCall(with id: UUID, updated update: CXCallUpdate) {}

    open func reportCall(with id: UUID, endedAt dateEnded: Date?, reason endedReason: CXCallEndedReason) {
        stubEnded.append((id, endedReason))
    }

    open func invalidate() {}

    // MARK: What plays iOS

    /// Why iOS doesn't show a call: the caller is blocked, or Do Not Disturb is on.
    public var stubRefusal: (any Error)?
    public private(set) var stubCalls: [(id: UUID, update: CXCallUpdate)] = []
    public private(set) var stubEnded: [(id: UUID, reason: CXCallEndedReason)] = []
}
