import TLS

/// A key's provider tokens, one at a time for all lanes: to Apple, two in twenty minutes are too many, whoever sends them. Touched on the
/// loop's thread only.
final class Signer {
    private var token: ProviderToken

    init(_ token: ProviderToken) { self.token = token }

    func current(nowMs: UInt64) throws(TLSError) -> ProviderToken.Issued { try token.current(nowMs: nowMs) }

    /// - Returns: whether there is another one than `refused` now.
    func renew(after refused: ProviderToken.Issued, nowMs: UInt64) -> Bool {
        (try? token.renew(after: refused, nowMs: nowMs)) ?? false
    }
}
