import Sealing
import Vocabulary

/// Gives each push to the courier of its service.
public struct PushRouter: PushSender {
    private let apns: any PushSender
    private let webPush: WebPushCourier?

    /// - Parameter webPush: nil if no Web Push is sent.
    public init(apns: any PushSender, webPush: WebPushCourier?) { (self.apns, self.webPush) = (apns, webPush) }

    public func send(_ push: Push) async -> Outcome {
        // No `default`: another service must not become Apple's unnoticed.
        switch push.address.destination {
        case .apns, .other: return await apns.send(push)
        case .webPush:
            guard let webPush else { return .failed(status: 0, reason: .notConfigured, verdict: .configuration) }
            return await webPush.send(push)
        }
    }
}
