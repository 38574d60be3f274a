import Courier
import Linux
import TLS

/// `mayfly apns jwt`.
enum APNsCommand {
    private static let keys: [Key] = [.apnsKeyPath, .apnsKeyID, .apnsTeamID]

    static func run(_ words: [String]) throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help("usage: mayfly apns jwt [FLAGS]\n  jwt   print a provider token, good for an hour: a secret", keys))
        }
        let configuration = try Configuration(words, environment: Environment.all, keys: keys)
        guard configuration.operands == ["jwt"] else { throw UsageError("apns takes jwt") }
        var token = try ProviderToken(
            keyID: try configuration.required(.apnsKeyID), teamID: try configuration.required(.apnsTeamID),
            key: try signingKey(configuration))
        Terminal.out(try token.current(nowMs: Clock.wallMs).jwt)
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
}
