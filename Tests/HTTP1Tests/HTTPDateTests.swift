import Testing

@testable import HTTP1

@Suite struct HTTPDateTests {
    /// 2026-11-20 10:00:00
    private static let nowS: UInt64 = 1_795_168_800

    /// RFC 9110 section 5.6.7.
    @Test(arguments: [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
        ("Sun Nov  6 08:49:37 1994", 784_111_777), ("Fri Nov 20 10:00:00 2026", nowS), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Thu, 29 Feb 2024 23:59:60 GMT", 1_709_251_200), ("Mon, 20 Nov 2026 10:00:00 GMT", nowS),
        // Two digits of a year that is at most 50 years ahead.
        ("Friday, 20-Nov-26 10:00:00 GMT", nowS), ("Friday, 20-Nov-76 10:00:00 GMT", 3_373_092_000),
        ("Sunday, 20-Nov-77 10:00:00 GMT", 248_868_000), ("Friday, 31-Dec-99 23:59:59 GMT", 946_684_799),
    ])
    func everyFormIsRead(text: String, seconds: UInt64) {
        #expect(HTTPDate.seconds(text, nowS: Self.nowS) == seconds)
    }

    @Test(arguments: [
        "", "7", "Fri", "Fri, 20 Nov 2026 10:00:00", "Fri, 20 Nov 2026 10:00:00 UTC", "Fri, 20 Nov 2026 10:00:00 +0100",
        "Fri 20 Nov 2026 10:00:00 GMT", "Fri, 31 Nov 2026 10:00:00 GMT", "Fri, 00 Nov 2026 10:00:00 GMT",
        "Fri, 29 Feb 2026 10:00:00 GMT", "Fri, 20 nov 2026 10:00:00 GMT", "Fri, 20 Nov 26 10:00:00 GMT",
        "Fri, 20 Nov 2026 24:00:00 GMT", "Fri, 20 Nov 2026 10:60:00 GMT", "Fri, 20 Nov 2026 10:00:61 GMT",
        "Fri, 20 Nov 2026 10:00 GMT",
        "Fri, 20 Nov 2026 1:00:00 GMT", "Fri, 20 Nov 1969 10:00:00 GMT", "Fri, 2\u{0660} Nov 2026 10:00:00 GMT",
        "Friday, 20-Nov-2026 10:00:00 GMT", "Fri, 20-Nov-26 10:00:00 GMT", "Freitag, 20-Nov-26 10:00:00 GMT",
        "Fri Nov 20 10:00:00 26",
        "Fri Nov 120 10:00:00 2026", "2026-11-20T10:00:00Z", "Fri, 20 Nov +026 10:00:00 GMT",
    ])
    func otherTextIsNoDate(text: String) {
        #expect(HTTPDate.seconds(text, nowS: Self.nowS) == nil)
    }

    @Test(
        arguments: [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"), (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"), (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 GMT"),
        ] as [(UInt64, String)])
    func datesAreWritten(_ seconds: UInt64, _ text: String) {
        #expect(HTTPDate.text(seconds) == text)
        #expect(HTTPDate.seconds(text, nowS: Self.nowS) == seconds)
    }
}
