import TLS

/// A key's provider tokens, one at a time for all lanes: to Apple, two in twenty minutes are too many, whoever sends them. Touched on the
/// loop's thread only.
final class Signer {
    private var token: ProviderToken
    private let name: String
    private let shared: Shared
    /// The last birth that is stored, and the last that was given to be stored. Only the birth is stored: the token is a password
    /// for an hour, and Apple counts two signatures over one birth as one token.
    private var storedIssuedAtS: UInt64?
    private var givenIssuedAtS: UInt64?

    init(_ token: ProviderToken, _ name: String, _ shared: Shared) {
        self.token = token
        self.name = name
        self.shared = shared
    }

    /// Nil while the birth of a new one is being stored; lanes are told when it is. Used before that, a crash would make it one too many.
    func current(nowMs: UInt64) throws(TLSError) -> ProviderToken.Issued? {
        let issued = try token.current(nowMs: nowMs)
        guard let store = token.store, issued.issuedAtS != storedIssuedAtS else { return issued }
        if issued.issuedAtS != givenIssuedAtS {
            givenIssuedAtS = issued.issuedAtS
            shared.store(issued.issuedAtS, of: name, store)
        }
        return nil
    }

    func isStored(_ issuedAtS: UInt64) { storedIssuedAtS = issuedAtS }

    /// - Returns: whether there is another one than `refused` now.
    func renew(after refused: ProviderToken.Issued, nowMs: UInt64) -> Bool {
        (try? token.renew(after: refused, nowMs: nowMs)) ?? false
    }
}
