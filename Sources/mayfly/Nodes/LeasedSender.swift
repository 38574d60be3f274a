import Courier

/// Sends pushes only during this node's term. After a suspension another node may have sent them, and only that one knows who is present.
struct LeasedSender: PushSender {
    private let courier: RenewableCourier
    private let lease: LeaseKeeper

    init(_ courier: RenewableCourier, _ lease: LeaseKeeper) { (self.courier, self.lease) = (courier, lease) }

    func send(_ push: Push) async -> Outcome {
        await lease.waitUntilCurrent()
        return await courier.send(push)
    }
}
