import API
import Broker
import Courier
import Vocabulary

/// Reads keys, certificates and the list of apps again while the broker runs: at SIGHUP, and when the operator's listener is told to.
///
/// On no loop, since reading blocks.
actor APNsRenewal {
    private let courier: RenewableCourier
    private let metrics: Metrics
    private let make: @Sendable (APNsSettings) throws -> Courier
    /// What pushes go by.
    private var inUse: APNsSettings
    /// The next try, while Apple can't be asked.
    private var retry: Task<Void, Never>?

    private static let retryAfter = Duration.seconds(30)

    /// - Parameter inUse: what `courier` was made of.
    init(
        _ courier: RenewableCourier, _ metrics: Metrics, inUse: APNsSettings,
        make: @escaping @Sendable (APNsSettings) throws -> Courier
    ) {
        self.courier = courier
        self.metrics = metrics
        self.inUse = inUse
        self.make = make
    }

    /// Puts what the files say in use, if Apple takes it. Otherwise keys and certificates stay as they are.
    func renew() async -> APNsControl.Renewal {
        retry?.cancel()
        retry = nil
        let settings: APNsSettings
        let candidate: Courier
        do {
            settings = try inUse.readAgain()
            // Nothing to ask Apple about.
            if try settings.isSame(as: inUse) { return isInUse() }
            candidate = try make(settings)
        } catch { return .refused(stays("\(error)")) }
        switch await courier.replace(by: candidate, after: settings.probes) {
        case .inUse:
            inUse = settings
            return isInUse()
        case .refused(let topic, let environment, let reason):
            return .refused(
                stays(
                    "APNs (\(environment)) refuses the new credentials for \(topic): \(reason.rawValue). The previous keys and certificates stay in use. "
                        + "\(reason.explanation.remedy)"))
        case .unknown(let topic, let environment, let reason):
            retry = Task {
                do { try await Task.sleep(for: Self.retryAfter) } catch { return }
                _ = await renew()
            }
            return .unknown(
                stays(
                    "APNs (\(environment)) could not check the new credentials for \(topic): \(reason.rawValue). The previous keys and "
                        + "certificates stay in use. The check is repeated every 30 seconds"))
        case .superseded: return .unknown("a later renewal or a stop replaced this one")
        }
    }

    private func isInUse() -> APNsControl.Renewal {
        Terminal.log("apns: new pushes use the new credentials")
        return .inUse
    }

    private func stays(_ fault: String) -> String {
        metrics.add(.alarms)
        Terminal.log("apns: the present credentials stay in use. \(fault)")
        return fault
    }
}
