/// Where things lie in a state folder. Nothing else appears in it.
struct StateFolder {
    let path: String

    var keys: String { path + "/keys" }
    var ratchetKey: String { keys + "/ratchet.key" }
    var ledgerKey: String { keys + "/ledger.key" }
    var database: String { path + "/mayfly.sqlite" }
    var ledger: String { path + "/ledger" }
    var verifierKey: String { path + "/ledger.vkey" }

    // Made by `keys throwaway` only.
    var apnsKey: String { keys + "/apns.p8" }
    var simulatorCertificate: String { keys + "/simulator.pem" }
    var simulatorCA: String { keys + "/simulator-ca.pem" }
}
