/// Where things lie in a state folder. Nothing else appears in it.
struct StateFolder {
    let path: String

    var keys: String { path + "/keys" }
    var ratchetKey: String { keys + "/ratchet.key" }
    var ledgerKey: String { keys + "/ledger.key" }
    /// The key of the log that is to follow, while one log is exchanged for another.
    var nextLedgerKey: String { keys + "/ledger.key.next" }
    var database: String { path + "/mayfly.sqlite" }
    var ledger: String { path + "/ledger" }
    var verifierKey: String { path + "/ledger.vkey" }

    // Made by `keys throwaway` only.
    var apnsKey: String { keys + "/apns.p8" }
    var simulatorCertificate: String { keys + "/simulator.pem" }
    var simulatorCA: String { keys + "/simulator-ca.pem" }
}
