import Testing

@testable import SQLite

@Suite struct DatabaseTests {
    @Test func readsBoundValuesBack() throws {
        let database = try SQLiteConnection(path: ":memory:")
        try database.execute("CREATE TABLE t (a INTEGER, b BLOB, c TEXT, d BLOB)")
        let insert = try database.prepare("INSERT INTO t VALUES (?, ?, ?, ?)")
        insert.bind(Int64.min, at: 1)
        insert.bind([0, 255, 0], at: 2)
        insert.bind("köln\u{0}x", at: 3)
        insert.bind([], at: 4)
        #expect(try !insert.step())
        #expect(database.changes == 1)
        let select = try database.prepare("SELECT a, b, c, d, typeof(d), length(b) FROM t")
        #expect(try select.step())
        #expect(select.int(0) == .min)
        #expect(select.blob(1) == [0, 255, 0])
        #expect(select.blob(3) == [])
        #expect(!select.isNull(3))
        #expect(select.text(4) == "blob")
        #expect(try !select.step())
    }

    @Test func reportsConstraintViolations() throws {
        let database = try SQLiteConnection(path: ":memory:")
        try database.execute("CREATE TABLE t (a INTEGER PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES (1)")
        let error = #expect(throws: SQLiteError.self) { try database.execute("INSERT INTO t VALUES (1)") }
        // SQLITE_CONSTRAINT
        #expect(error?.primary == 19)
        #expect(error?.isFull == false)
    }

    @Test func missingFolderAndForeignFileAreErrors() throws {
        #expect(throws: SQLiteError.self) { try SQLiteConnection(path: "/nonexistent/folder/x.sqlite") }
        let error = #expect(throws: SQLiteError.self) {
            try SQLiteConnection(path: "/etc/os-release", access: .readOnly).execute("SELECT * FROM sqlite_master")
        }
        #expect(error?.isDamaged == true)
    }

    @Test func errorsContainNoValues() throws {
        let database = try SQLiteConnection(path: ":memory:")
        let error = #expect(throws: SQLiteError.self) { try database.execute("SELECT 'canary' FROM nowhere") }
        #expect(error.map { !"\($0)".contains("canary") } == true)
    }
}
