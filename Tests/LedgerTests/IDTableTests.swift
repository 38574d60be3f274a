import Testing

@testable import Ledger

@Suite("ID table")
struct IDTableTests {
    /// Whoever writes a log chooses its ids: none may make the search for many others long.
    @Test(arguments: [0, 0x9e37_79b9_7f4a_7c15, UInt64.max])
    func idsThatShareAHalfAreSpread(half: UInt64) {
        let table = IDTable()
        for isHigh in [true, false] {
            let starts = Set(
                (0..<1_000).map { number in table.start(isHigh ? UInt128(half) << 64 | number : number << 64 | UInt128(half)) })
            #expect(starts.count > 400, "of 1,024 places")
        }
    }
}
