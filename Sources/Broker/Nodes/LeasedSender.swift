public import Courier

/// Sends pushes only during this node's term. After a suspension another node may have sent them, and only that one knows who is present.
public struct LeasedSender: PushSender {
    private let courier: any PushSender
    private let lease: LeaseKeeper

    public init(_ courier: any PushSender, _ lease: LeaseKeeper) { (self.courier, self.lease) = (courier, lease) }

    public func send(_ push: Push) async -> Outcome {
        await lease.waitUntilCurrent()
        return await courier.send(push)
    }
}
