import Linux

/// Unix milliseconds as RFC 3339 text, in UTC and whole seconds: `2026-01-02T03:04:05Z`.
public enum Timestamp {
    public static let count = 20
    /// The exclusive end of year 9999, the last with four digits.
    public static let endMs: UInt64 = 253_402_300_800_000

    /// Appends `ms` in whole seconds. A time after year 9999 becomes that year's last second.
    public static func append(_ ms: UInt64, to text: inout [UInt8]) {
        let seconds = min(ms, endMs - 1) / 1000
        let date = CalendarDate(daysSince1970: seconds / 86400)
        let time = seconds % 86400
        append(date.year / 100, to: &text, then: nil)
        append(date.year % 100, to: &text, then: UInt8(ascii: "-"))
        append(date.month, to: &text, then: UInt8(ascii: "-"))
        append(date.day, to: &text, then: UInt8(ascii: "T"))
        append(time / 3600, to: &text, then: UInt8(ascii: ":"))
        append(time / 60 % 60, to: &text, then: UInt8(ascii: ":"))
        append(time % 60, to: &text, then: UInt8(ascii: "Z"))
    }

    public static func text(_ ms: UInt64) -> String {
        var text: [UInt8] = []
        text.reserveCapacity(count)
        append(ms, to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// With milliseconds: `2026-01-02T03:04:05.678Z`.
    public static func preciseText(_ ms: UInt64) -> String {
        let part = String(1_000 + ms % 1_000).dropFirst()
        return text(ms).dropLast() + "." + part + "Z"
    }

    /// Parses the 20 characters at `start`. Returns nil for another format, a date that does not exist, or a time before 1970.
    public static func parse(_ text: Span<UInt8>, at start: Int) -> UInt64? {
        guard start + count <= text.count,
            text[start + 4] == UInt8(ascii: "-"), text[start + 7] == UInt8(ascii: "-"), text[start + 10] == UInt8(ascii: "T"),
            text[start + 13] == UInt8(ascii: ":"), text[start + 16] == UInt8(ascii: ":"), text[start + 19] == UInt8(ascii: "Z"),
            let century = pair(text, start), let years = pair(text, start + 2),
            let month = pair(text, start + 5), let day = pair(text, start + 8),
            let hour = pair(text, start + 11), let minute = pair(text, start + 14), let second = pair(text, start + 17)
        else { return nil }
        let year = century * 100 + years
        guard year >= 1970, (1...12).contains(month), day >= 1, day <= daysIn(month, of: year), hour < 24, minute < 60,
            second < 60
        else { return nil }
        return (CalendarDate(year: year, month: month, day: day).daysSince1970 * 86400 + hour * 3600 + minute * 60 + second)
            * 1000
    }

    @inline(__always)
    private static func append(_ number: UInt64, to text: inout [UInt8], then mark: UInt8?) {
        text.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: number / 10))
        text.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: number % 10))
        if let mark { text.append(mark) }
    }

    @inline(__always)
    private static func pair(_ text: Span<UInt8>, _ at: Int) -> UInt64? {
        let (tens, ones) = (text[at] &- UInt8(ascii: "0"), text[at + 1] &- UInt8(ascii: "0"))
        return tens < 10 && ones < 10 ? UInt64(tens) * 10 + UInt64(ones) : nil
    }

    private static func daysIn(_ month: UInt64, of year: UInt64) -> UInt64 {
        switch month {
        case 4, 6, 9, 11: 30
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        default: 31
        }
    }
}
