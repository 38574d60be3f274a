import Courier
import Linux

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
            key: try APNsSettings.signingKey(configuration))
        Terminal.out(try token.current(nowMs: Clock.wallMs).jwt)
    }
}
