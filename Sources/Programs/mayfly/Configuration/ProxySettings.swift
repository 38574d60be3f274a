import Broker
import Courier
import Linux
import Sealing
import Sodium

/// The HTTP proxy on the way to Apple and to Web Push services.
enum ProxySettings {
    /// Returns nil if no proxy is configured.
    static func read(_ configuration: Configuration) throws -> Proxy? {
        let file = try configuration.file(.apnsProxyPassword)
        guard let text = configuration[.apnsProxy] else {
            guard file == nil else { throw configuration.invalid(.apnsProxyPassword, "needs \(Setting.apnsProxy.named)") }
            return nil
        }
        let (user, address) = try split(text, configuration)
        guard let endpoint = APNsSettings.endpoint(address) else { throw malformed(configuration) }
        switch (user, file) {
        case (nil, nil): return Proxy(endpoint)
        case (let user?, let file?): return Proxy(endpoint, credentials: try credentials(user, file))
        default:
            throw configuration.invalid(
                .apnsProxy,
                "needs both or neither: a user (USER@HOST:PORT) and \(Setting.apnsProxyPassword.named)")
        }
    }

    private static func malformed(_ configuration: Configuration) -> UsageError {
        configuration.invalid(.apnsProxy, "must be HOST:PORT or USER@HOST:PORT of an HTTP proxy")
    }

    /// Splits `[http://][USER@]HOST:PORT[/]`. Users paste the first and the last part from HTTPS_PROXY.
    private static func split(_ text: String, _ configuration: Configuration) throws -> (user: String?, address: String) {
        var rest = text[...]
        if rest.hasPrefix("http://") { rest = rest.dropFirst(7) }
        if rest.hasSuffix("/") { rest = rest.dropLast() }
        guard !rest.contains("/") else { throw malformed(configuration) }
        guard let at = rest.lastIndex(of: "@") else { return (nil, String(rest)) }
        let user = rest[..<at]
        guard !user.contains(":") else {
            throw configuration.invalid(
                .apnsProxy,
                "must not contain a password. Write it to a file with mode 0600, and name that file with \(Setting.apnsProxyPassword.named)"
            )
        }
        guard !user.isEmpty, user.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f }) else { throw malformed(configuration) }
        return (String(user), String(rest[rest.index(after: at)...]))
    }

    /// Joins user and password. Their room in locked memory is limited.
    private static func credentials(_ user: String, _ file: GivenFile) throws -> Secret {
        file.warnIfExposed("the proxy's password")
        var password = try file.firstLine(limit: 1_024)
        defer { wipe(&password) }
        // RFC 7617 section 2.
        guard !password.isEmpty, password.allSatisfy({ $0 >= 0x20 && $0 != 0x7f }) else {
            throw file.failure("must have a password in its first line, without control characters")
        }
        let most = Arena.slotBytes
        let count = user.utf8.count + 1 + password.count
        guard count <= most else {
            throw file.failure("is too long: user and password together may have \(most - 1) bytes")
        }
        var pair: [UInt8] = []
        pair.reserveCapacity(count)
        defer { wipe(&pair) }
        pair += user.utf8
        pair.append(UInt8(ascii: ":"))
        pair += password
        return try Secret(copying: pair.span)
    }

    private static let variables = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]

    /// Warns about a proxy that other programs use and this one doesn't: a stray variable must not decide what sees Mayfly's connections.
    static func warnOfVariables(_ configuration: Configuration) {
        guard configuration[.apnsProxy] == nil, configuration[.apnsEndpoint] == nil,
            let name = variables.first(where: { Environment.has($0) })
        else { return }
        Terminal.log(
            .warning,
            "\(name) is set, but Mayfly doesn't use it. If Apple can be reached only through that proxy, set \(Setting.apnsProxy.named)"
        )
    }
}
