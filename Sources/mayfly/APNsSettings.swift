import Courier
import Linux
import Sealing
import TLS

/// Who pushes to which app, and where: what `serve` and the `apns` commands have in common.
struct APNsSettings {
    static let keys: [Key] = [
        .apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsBundleID, .apnsEnvironment, .apnsProduction, .apnsEndpoint, .apnsCA,
    ]

    let topic: String
    let environment: PushEnvironment
    let key: ES256.PrivateKey
    let keyID: String
    let teamID: String
    let endpoint: Endpoint?
    let trust: TLSContext.Trust

    init(_ configuration: Configuration) throws {
        topic = try configuration.required(.apnsBundleID)
        environment = try Self.environment(configuration)
        keyID = try configuration.required(.apnsKeyID)
        teamID = try configuration.required(.apnsTeamID)
        key = try Self.signingKey(configuration)
        if let path = configuration[.apnsKeyPath], let mode = try? File.status(path)?.mode, mode & 0o077 != 0 {
            Terminal.log("warning: others than this user can read \(path), by which pushes are signed: make its mode 0600")
        }
        endpoint = try configuration[.apnsEndpoint].map { try Self.endpoint($0) }
        if let path = configuration[.apnsCA] {
            do {
                trust = .authorities(try File.read(path, limit: 1_048_576))
            } catch {
                throw CheckFailed("mayfly: the certificates in \(path) can't be read: \(error)")
            }
        } else {
            trust = .system
        }
    }

    /// Apple's .p8 key.
    static func signingKey(_ configuration: Configuration) throws -> ES256.PrivateKey {
        let path = try configuration.required(.apnsKeyPath)
        do {
            let text = try File.read(path, limit: 65_536)
            return try ES256.PrivateKey(pem: text.span)
        } catch let error as Errno {
            throw CheckFailed("mayfly: the APNs key \(path) can't be read: \(error)")
        } catch {
            throw CheckFailed("mayfly: \(path) is no APNs key: \(error)")
        }
    }

    /// - Parameters:
    ///   - issuedAtS: the birth of the provider token that was used last, unix seconds.
    ///   - renewed: is told each new one's, to keep it.
    func courier(
        issuedAtS: UInt64?, renewed: @escaping @Sendable (UInt64) -> Void = { _ in }, onAlarm: @escaping @Sendable (Alarm) -> Void
    ) throws -> Courier.Configuration {
        let token = try ProviderToken(keyID: keyID, teamID: teamID, key: key, issuedAtS: issuedAtS, renewed: renewed)
        var configuration = Courier.Configuration(providerToken: token, onAlarm: onAlarm)
        configuration.trust = trust
        if let endpoint {
            configuration.production = endpoint
            configuration.sandbox = endpoint
        }
        return configuration
    }

    private static func environment(_ configuration: Configuration) throws -> PushEnvironment {
        switch (configuration[.apnsEnvironment], configuration[.apnsProduction]) {
        case ("production", _), (nil, nil), (nil, "true"), (nil, "1"): return .production
        case ("sandbox", _), ("development", _), (nil, "false"), (nil, "0"): return .sandbox
        case (nil, _): throw UsageError("--apns-production takes true or false")
        default: throw UsageError("--apns-environment takes production, sandbox or development")
        }
    }

    private static func endpoint(_ text: String) throws -> Endpoint {
        if let address = SocketAddress(parsing: text), let port = address.port { return Endpoint(host: address.host, port: port) }
        let parts = text.split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1]), port > 0 else { throw UsageError("--apns-endpoint is no HOST:PORT") }
        return Endpoint(host: String(parts[0]), port: port)
    }
}
