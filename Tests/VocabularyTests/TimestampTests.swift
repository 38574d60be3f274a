import Testing
import Vocabulary

private func parse(_ text: String) -> UInt64? {
    let text = Array(text.utf8)
    return Timestamp.parse(text.span, at: 0)
}

@Suite struct TimestampTests {
    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"), (1_709_251_200_001, "2024-03-01T00:00:00.001Z"),
            (4_102_444_799_123, "2099-12-31T23:59:59.123Z"), (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"), (Timestamp.endMs - 1, "9999-12-31T23:59:59.999Z"),
        ] as [(UInt64, String)])
    func isWrittenInOneWay(_ ms: UInt64, _ text: String) {
        #expect(Timestamp.preciseText(ms) == text)
        #expect(Timestamp.text(ms) == text.prefix(19) + "Z")
        #expect(parse(Timestamp.text(ms)) == ms / 1_000 * 1_000)
    }

    @Test func everyDayOfFourCenturiesReadsBack() {
        for day in stride(from: UInt64(0), to: 146_097, by: 7) {
            let ms = day * 86_400_000 + 3_723_000
            #expect(parse(Timestamp.text(ms)) == ms)
        }
    }

    @Test(arguments: [Timestamp.endMs, UInt64.max])
    func noTimeHasFiveDigitsForItsYear(_ ms: UInt64) { #expect(Timestamp.text(ms) == "9999-12-31T23:59:59Z") }

    @Test(arguments: [
        "1969-12-31T23:59:59Z", "2001-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2000-13-01T00:00:00Z", "2000-00-01T00:00:00Z",
        "2000-01-00T00:00:00Z", "2000-04-31T00:00:00Z", "2000-01-01T24:00:00Z", "2000-01-01T00:60:00Z", "2000-01-01T00:00:60Z",
        "2000-01-01t00:00:00Z", "2000-01-01T00:00:00z", "2000-01-01 00:00:00Z", "2000-01-01T00:00:00", "",
    ])
    func anotherSpellingIsNone(_ text: String) { #expect(parse(text) == nil) }
}
