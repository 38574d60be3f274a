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
        let token = try ProviderToken(
            keyID: settings.apnsKeyID, teamID: settings.apnsTeamID, key: settings.apnsKey, issuedAtS: issued
        ) { issuedAt in
            _ = Task { try? await store.setMark(name, KeyKeeper.encode(issuedAt)) }
        }
        var configuration = Courier.Configuration(providerToken: token) { alarm in
            metrics.add(.alarms)
            Terminal.log("courier: \(alarm)")
        }
        configuration.trust = settings.apnsTrust
        if let endpoint = settings.apnsEndpoint {
            configuration.production = endpoint
            configuration.sandbox = endpoint
        }
        return configuration
    }
}
