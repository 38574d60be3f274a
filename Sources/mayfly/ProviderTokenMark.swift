import Broker
import Courier
import Linux
import Storage
import Synchronization

/// The provider token's birth, kept across restarts so that Apple does not see more than one in twenty minutes. Only the time
/// is stored: the token itself would let a thief of the database push.
enum ProviderTokenMark {
    private static let name = "apns.issued"

    static func configuration(
        _ settings: ServiceSettings, _ store: SQLiteStore, _ metrics: Metrics
    ) async throws -> Courier.Configuration {
        let issued = try await store.mark(name).flatMap { KeyKeeper.decode($0) }
        return try settings.apns.courier(
            issuedAtS: issued,
            renewed: { issuedAt in _ = Task { try? await store.setMark(name, KeyKeeper.encode(issuedAt)) } },
            onAlarm: { alarm in
                metrics.add(.alarms)
                Terminal.log("courier: \(alarm)")
            })
    }

    /// Of a broker on this state folder, if there is one; unix seconds. A command that pushes uses the same birth, and so the same token.
    static func read(_ state: StateFolder) -> UInt64? {
        guard File.exists(state.database), let store = try? StoreSnapshot(path: state.database) else { return nil }
        return (try? store.mark(name)).flatMap { $0 }.flatMap { KeyKeeper.decode($0) }
    }
}
