import Linux
import Testing

@Suite struct CalendarDateTests {
    @Test func daysAndDatesAreInverse() {
        for days: UInt64 in stride(from: 0, to: 3_000_000, by: 97) {
            let date = CalendarDate(daysSince1970: days)
            #expect(date.daysSince1970 == days)
            #expect((1...12).contains(date.month) && (1...31).contains(date.day))
        }
    }
}
