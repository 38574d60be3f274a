import Linux

/// The PostgreSQL that `make test` starts (scripts/postgres).
public enum TestPostgres {
    public static let uri: String = {
        guard let uri = Environment.all.first(where: { $0.name == "MAYFLY_TEST_POSTGRES" })?.value else {
            preconditionFailure("set MAYFLY_TEST_POSTGRES to the output of `scripts/postgres start FOLDER`")
        }
        return uri
    }()
}
