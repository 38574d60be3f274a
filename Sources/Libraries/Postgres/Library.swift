internal import CPostgres

/// libpq's functions. It is loaded at its first use, so a broker with SQLite neither needs nor loads it.
enum Library {
    private static let loaded: Result<mayfly_pq, PostgresError> = {
        var functions = mayfly_pq()
        if let missing = unsafe mayfly_pq_load(&functions) {
            return unsafe .failure(.library(String(cString: missing)))
        }
        return .success(functions)
    }()

    static func load() throws(PostgresError) -> mayfly_pq { try loaded.get() }
}
