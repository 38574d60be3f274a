import Linux
import SQLite
import Testing

/// What is deleted leaves no piece in the file: also not where SQLite had put it before it rebuilt a page, which `secure_delete` forgets.
@Suite struct RemnantTests {
    // Promise: deleted-bytes-overwritten
    @Test func rowsThatAreGoneLeaveNoPiece() throws {
        var chance = Chance(state: 1)
        for _ in 0..<8 {
            let folder = try File.makeTemporaryFolder()
            let database = try Connection(path: folder + "/t.sqlite")
            try database.execute(
                """
                PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA secure_delete = ON;
                CREATE TABLE t (e INTEGER, k INTEGER, d BLOB, PRIMARY KEY (e, k)) WITHOUT ROWID; BEGIN
                """)
            var rows: [Int64] = []
            for key in 0..<500 {
                rows.append(Int64(chance.next() % 1_000))
                try write("INSERT INTO t (d, e, k) VALUES (?, ?, ?)", key, rows[key], &chance, database)
                // Rows grow and shrink, so that pages are divided and joined.
                let other = Int(chance.next() % UInt64(rows.count))
                try write("UPDATE t SET d = ? WHERE e = ? AND k = ?", other, rows[other], &chance, database)
            }
            try database.execute("COMMIT")
            for end in stride(from: 50, through: 500, by: 50) { try database.execute("DELETE FROM t WHERE e < \(end)") }
            #expect(try database.checkpointTruncating(waitMs: 0))
            let left = try File.read(folder + "/t.sqlite", limit: 1 << 24)
            #expect(longestRun(of: 0x33, in: left) > 100, "the rows that stay are not found either")
            #expect(longestRun(of: 0xee, in: left) < 8)
            let check = try database.prepare("PRAGMA integrity_check")
            #expect(try check.step())
            #expect(check.text(0) == "ok")
            try File.removeTree(folder)
        }
    }

    /// A row's content says whether it stays.
    private func write(_ sql: StaticString, _ key: Int, _ end: Int64, _ chance: inout Chance, _ database: Connection) throws {
        let statement = try database.cached(sql)
        statement.bind([UInt8](repeating: end < 500 ? 0xee : 0x33, count: 20 + Int(chance.next() % 880)), at: 1)
        statement.bind(end, at: 2)
        statement.bind(Int64(key), at: 3)
        #expect(try !statement.step())
        statement.reset()
    }

    private func longestRun(of byte: UInt8, in bytes: [UInt8]) -> Int {
        var (longest, run) = (0, 0)
        for index in bytes.indices {
            run = bytes[index] == byte ? run + 1 : 0
            longest = max(longest, run)
        }
        return longest
    }
}
