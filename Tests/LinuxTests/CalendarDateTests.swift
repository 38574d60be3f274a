import Linux
import Testing

@Suite struct CalendarDateTests {
    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_001, "2024-03-01T00:00:00.001Z"), (4_102_444_799_123, "2099-12-31T23:59:59.123Z"),
        ] as [(UInt64, String)])
    func text(_ ms: UInt64, _ text: String) { #expect(CalendarDate.timestamp(ms: ms) == text) }

    @Test func wholeSeconds() {
        var text: [UInt8] = []
        CalendarDate.append(seconds: 951_782_399, to: &text)
        #expect(String(decoding: text, as: UTF8.self) == "2000-02-28T23:59:59Z")
    }

    @Test func daysAndDatesAreInverse() {
        for days: UInt64 in stride(from: 0, to: 3_000_000, by: 97) {
            let date = CalendarDate(daysSince1970: days)
            #expect(date.daysSince1970 == days)
            #expect((1...12).contains(date.month) && (1...31).contains(date.day))
        }
    }
}
