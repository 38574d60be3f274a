/// A day of the proleptic Gregorian calendar, in UTC. Glibc's own conversions take locks and time zones.
public struct CalendarDate: Sendable, Hashable {
    public let year: UInt64
    /// 1 to 12, and 1 to 31.
    public let month: UInt64
    public let day: UInt64

    /// A day that exists, in year 1 or later.
    public init(year: UInt64, month: UInt64, day: UInt64) { (self.year, self.month, self.day) = (year, month, day) }

    // Eras of 400 years that begin on 1 March, so that a leap day ends its year.
    public init(daysSince1970: UInt64) {
        let days = daysSince1970 + 719_468
        let (era, dayOfEra) = (days / 146_097, days % 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shifted = (5 * dayOfYear + 2) / 153
        month = shifted < 10 ? shifted + 3 : shifted - 9
        year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        day = dayOfYear - (153 * shifted + 2) / 5 + 1
    }

    /// Nothing before 1970.
    public var daysSince1970: UInt64 {
        let shifted = month <= 2 ? year - 1 : year
        let (era, yearOfEra) = (shifted / 400, shifted % 400)
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    /// RFC 3339 in UTC with milliseconds, `2026-01-02T03:04:05.678Z`.
    public static func timestamp(ms: UInt64) -> String {
        var text: [UInt8] = []
        append(seconds: ms / 1_000, milliseconds: ms % 1_000, to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// Appends RFC 3339 in UTC, `2026-01-02T03:04:05Z`: 20 bytes, until the year 10000, and 4 more with milliseconds.
    public static func append(seconds: UInt64, milliseconds: UInt64? = nil, to text: inout [UInt8]) {
        let date = CalendarDate(daysSince1970: seconds / 86_400)
        func append(_ value: UInt64, _ width: Int, _ end: Unicode.Scalar) {
            var power: UInt64 = 1
            for _ in 1..<width { power *= 10 }
            while value / power >= 10 { power *= 10 }
            while power > 0 {
                text.append(UInt8(ascii: "0") + UInt8(value / power % 10))
                power /= 10
            }
            text.append(UInt8(ascii: end))
        }
        append(date.year, 4, "-")
        append(date.month, 2, "-")
        append(date.day, 2, "T")
        append(seconds / 3_600 % 24, 2, ":")
        append(seconds / 60 % 60, 2, ":")
        append(seconds % 60, 2, milliseconds == nil ? "Z" : ".")
        if let milliseconds { append(milliseconds, 3, "Z") }
    }
}
