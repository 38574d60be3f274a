import Testing

@testable import Ledger

@Suite("ID table")
struct IDTableTests {
    /// Whoever writes a log chooses its ids: none may make the search for many others long.
    @Test(arguments: [0, 0x9e37_79b9_7f4a_7c15, UInt64.max])
    func idsThatShareAHalfAreSpread(half: UInt64) {
        // Whatever the secrets are: of four, one makes a factor that ends in two zero bits.
        let tables =
            (0..<500).map { _ in IDTable() }
            + (0..<12).map { zeros in
                IDTable(seeds: (half ^ UInt64.random(in: 1 ... .max) << zeros, half ^ UInt64.random(in: 1 ... .max) << zeros))
            }
        for table in tables {
            for isHigh in [true, false] {
                let starts = Set(
                    (0..<1_000).map { table.start(isHigh ? UInt128(half) << 64 | $0 : $0 << 64 | UInt128(half)) })
                #expect(starts.count > 400, "of 1,024 places")
            }
        }
    }
}
