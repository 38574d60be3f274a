import Courier

/// Sends pushes only while this node holds the lease. After a suspension another node may have sent them, and know better who is present.
struct LeasedSender: PushSender {
    private let courier: RenewableCourier
    private let lease: LeaseKeeper

    init(_ courier: RenewableCourier, _ lease: LeaseKeeper) { (self.courier, self.lease) = (courier, lease) }

    func send(_ push: Push) async -> Outcome {
        await lease.waitUntilCurrent()
        return await courier.send(push)
    }
}
