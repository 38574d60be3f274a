/// Where things lie in a state folder. Nothing else appears in it.
struct StateFolder {
    let path: String
    /// The key file. It may lie elsewhere, in a folder that is there already.
    let ratchetKey: String
    let hasRatchetKeyElsewhere: Bool

    init(path: String, ratchetKey: String? = nil) {
        self.path = path
        self.ratchetKey = ratchetKey ?? path + "/keys/ratchet.key"
        hasRatchetKeyElsewhere = ratchetKey != nil
    }

    var keys: String { path + "/keys" }
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
