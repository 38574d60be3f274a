import Broker
import Courier

/// Reads keys, certificates and the list of apps again while the broker runs: at SIGHUP, and when the operator's listener is told to.
///
/// On no loop, since reading blocks; one renewal after the other, so that the files of the last one are those in use.
actor APNsRenewal {
    private let courier: RenewableCourier
    private let metrics: Metrics
    private let read: @Sendable () throws -> Courier

    /// - Parameter read: makes a courier of what the files say now.
    init(_ courier: RenewableCourier, _ metrics: Metrics, read: @escaping @Sendable () throws -> Courier) {
        self.courier = courier
        self.metrics = metrics
        self.read = read
    }

    /// Files that are no good change nothing.
    /// - Returns: what is wrong with them, as a start would tell it; nil for nothing.
    func renew() -> String? {
        do {
            courier.replace(by: try read())
            Terminal.log("apns: new pushes go by what the files say now")
            return nil
        } catch {
            let text = CheckFailed.text(error)
            metrics.add(.alarms)
            Terminal.log("apns: what is in use stays. \(text)")
            return text
        }
    }
}
