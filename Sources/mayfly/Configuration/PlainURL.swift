import Linux

/// What settings require of a URL that the broker calls.
enum PlainURL {
    /// Returns whether the URL is ASCII and has no query, fragment or user, which could hold a secret.
    static func isPlain(_ url: String) -> Bool { url.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"?#@".utf8.contains($0) } }

    /// Returns whether nobody on the way can change the answer: https, or http to this machine.
    static func isProtected(_ url: String) -> Bool {
        url.hasPrefix("https://") && url.utf8.count > 8 || url.hasPrefix("http://") && isLoopback(url.dropFirst(7))
    }

    /// Whether an authority, and what follows it, is on this machine.
    private static func isLoopback(_ rest: Substring) -> Bool {
        let authority = String(rest.prefix { $0 != "/" })
        guard !authority.hasPrefix("unix:") else { return false }
        return (SocketAddress(parsing: authority) ?? SocketAddress(parsing: authority + ":80"))?.isLoopback ?? false
    }
}
