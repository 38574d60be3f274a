import Linux
import TestPostgres
import Testing

@testable import Postgres

@Suite struct ConnectionTests {
    private func connect() throws -> PostgresConnection { try PostgresConnection(TestPostgres.uri, deadlineMs: 5_000) }

    private func run(_ connection: PostgresConnection, _ sql: String, _ fill: (inout Parameters) -> Void = { _ in }) throws
        -> [QueryResult]
    {
        var parameters = Parameters()
        fill(&parameters)
        try connection.send(text: sql, parameters)
        return try connection.receive(deadlineMs: 5_000)
    }

    @Test func valuesComeBackAsTheyWere() throws {
        let result = try run(
            try connect(), "SELECT $1::bigint, $2::bytea, $3::text, $4::bytea, $5::bytea, $6::bigint[], true, 7::int"
        ) {
            $0.add(Int64.min + 5)
            $0.add([0, 255, 39, 0].span)
            $0.add("naïve 'text'")
            $0.addNull()
            $0.add([UInt8]().span)
            $0.add([1, -2, .max])
        }[0]
        #expect(result.next())
        #expect(result.int(0) == .min + 5)
        #expect(result.blob(1) == [0, 255, 39, 0])
        #expect(result.text(2) == "naïve 'text'")
        #expect(result.isNull(3) && !result.isNull(4))
        #expect(result.blob(3) == [] && result.blob(4) == [])
        #expect(result.blob(5).suffix(8) == [127, 255, 255, 255, 255, 255, 255, 255])
        #expect(result.int(6) == 1 && result.int(7) == 7)
        #expect(!result.next())
        #expect(
            try run(try connect(), "SELECT -1::int, -1::smallint, 200::smallint")[0].first { [$0.int(0), $0.int(1), $0.int(2)] }
                == [-1, -1, 200])
    }

    @Test func arraysKeepTheirOrder() throws {
        let result = try run(try connect(), "SELECT key FROM unnest($1::bigint[]) AS key") { $0.add([3, 1, 2]) }[0]
        var keys: [Int64] = []
        while result.next() { keys.append(result.int(0)) }
        #expect(keys == [3, 1, 2])
        #expect(try run(try connect(), "SELECT cardinality($1::bigint[])") { $0.add([Int64]()) }[0].first { $0.int(0) } == 0)
    }

    @Test func aPipelineAnswersInOrder() throws {
        let connection = try connect()
        for round in 0..<3 {
            for number in 0..<500 {
                var parameters = Parameters()
                parameters.add(Int64(number + round))
                try connection.send("SELECT $1::bigint * 2", parameters)
            }
            let results = try connection.receive(deadlineMs: 5_000)
            #expect(results.map { $0.first { $0.int(0) } } == (0..<500).map { Int64($0 + round) * 2 })
        }
        #expect(try connection.receive(deadlineMs: 5_000).isEmpty)
    }

    @Test func aFailedStatementSkipsThoseAfterIt() throws {
        let connection = try connect()
        _ = try run(connection, "CREATE TEMP TABLE number (value bigint PRIMARY KEY)")
        try connection.send("BEGIN")
        try connection.send("INSERT INTO number VALUES (1)")
        try connection.send("INSERT INTO number VALUES (1)")
        try connection.send("COMMIT")
        #expect(throws: PostgresError.statement("23505")) { try connection.receive(deadlineMs: 5_000) }
        _ = try run(connection, "ROLLBACK")
        #expect(try run(connection, "SELECT count(*) FROM number")[0].first { $0.int(0) } == 0)
        // The statements prepared in the failed pipeline are prepared again.
        try connection.send("INSERT INTO number VALUES (1)")
        #expect(try connection.receive(deadlineMs: 5_000)[0].changed == 1)
        #expect(connection.isUsable)
    }

    @Test func manyLargeValuesDoNotBlock() throws {
        let connection = try connect()
        for _ in 0..<200 {
            var parameters = Parameters()
            parameters.add([UInt8](repeating: 7, count: 100_000).span)
            try connection.send("SELECT $1::bytea", parameters)
        }
        #expect(try connection.receive(deadlineMs: 20_000).allSatisfy { $0.first { $0.blob(0).count } == 100_000 })
    }

    @Test func deadlinesEndTheConnection() throws {
        let connection = try connect()
        #expect(throws: PostgresError.silent) {
            try connection.send("SELECT pg_sleep(5)")
            _ = try connection.receive(deadlineMs: 50)
        }
        #expect(!connection.isUsable)
        #expect(throws: PostgresError.self) { try connection.send("SELECT 1") }
    }

    @Test func aCutConnectionIsLost() throws {
        let (connection, other) = (try connect(), try connect())
        let pid = try run(connection, "SELECT pg_backend_pid()")[0].first { $0.int(0) }
        _ = try run(other, "SELECT pg_terminate_backend($1::bigint::int)") { $0.add(pid ?? 0) }
        do {
            try connection.send("SELECT 1")
            _ = try connection.receive(deadlineMs: 5_000)
            Issue.record("the connection still works")
        } catch {
            guard case .lost = error else { return #expect(error == .statement("57P01")) }
        }
    }

    @Test func aRefusedPasswordSaysWhereToPutIt() {
        for text in ["fe_sendauth: no password supplied", "FATAL:  password authentication failed for user \"mayfly\""] {
            #expect(PostgresError.refused(text).description.hasSuffix("and name it in the address with passfile=FILE"))
        }
        #expect(PostgresError.refused("Connection refused").description.hasSuffix("Connection refused"))
    }

    @Test func unreachableServersAreRefused() throws {
        #expect(throws: PostgresError.address) { try PostgresConnection("postgres!", deadlineMs: 100) }
        do {
            _ = try PostgresConnection("postgresql://127.0.0.1:1/none", deadlineMs: 1_000)
            Issue.record("connected to nothing")
        } catch {
            guard case .refused(let text) = error else { throw error }
            #expect(text.contains("refused"))
        }
        // Accepts connections and never answers.
        let silent = try Socket.listen(on: .v4(0x7f00_0001, port: 0))
        guard case .v4(_, let port) = try silent.localAddress() else { return }
        #expect(throws: PostgresError.refused("no answer in time")) {
            try PostgresConnection("postgresql://127.0.0.1:\(port)/none?sslmode=disable", deadlineMs: 200)
        }
    }
}

extension QueryResult {
    /// Reads the first row.
    fileprivate func first<Value>(_ read: (QueryResult) -> Value) -> Value? { next() ? read(self) : nil }
}
