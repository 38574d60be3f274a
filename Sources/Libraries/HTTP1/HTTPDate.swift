import Linux

/// A date in a header line (RFC 9110 section 5.6.7).
public enum HTTPDate {
    private static let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let longDays = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"]
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    /// Writes the form that all senders use, e.g. `Sun, 06 Nov 1994 08:49:37 GMT`.
    /// - Parameter seconds: unix time.
    public static func text(_ seconds: UInt64) -> String {
        let days = Int(seconds / 86400)
        let second = Int(seconds % 86400)
        let calendar = CalendarDate(daysSince1970: UInt64(days))
        func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let date = "\(Self.days[days % 7]), \(two(Int(calendar.day))) \(months[Int(calendar.month) - 1]) \(calendar.year)"
        return "\(date) \(two(second / 3600)):\(two(second / 60 % 60)):\(two(second % 60)) GMT"
    }

    /// Parses each of the three forms that a recipient must accept: the one of `text`, `Sunday, 06-Nov-94 08:49:37 GMT` and
    /// `Sun Nov  6 08:49:37 1994`. The day of the week may be wrong.
    /// - Parameter nowS: unix time, for a year of two digits: it is at most 50 years ahead.
    /// - Returns: unix seconds. Nil if the text is no such date, or one before 1970.
    public static func seconds(_ text: String, nowS: UInt64) -> UInt64? {
        let words = text.split(separator: " ").map(String.init)
        switch words.count {
        case 6 where words[5] == "GMT" && days.contains { $0 + "," == words[0] }:
            return seconds(number(words[3], 4), words[2], number(words[1], 2), words[4])
        case 5 where days.contains(words[0]):
            return seconds(number(words[4], 4), words[1], number(words[2], min(2, words[2].utf8.count)), words[3])
        case 4 where words[3] == "GMT" && longDays.contains { $0 + "," == words[0] }:
            let parts = words[1].split(separator: "-", omittingEmptySubsequences: false).map(String.init)
            guard parts.count == 3, let short = number(parts[2], 2) else { return nil }
            let now = CalendarDate(daysSince1970: nowS / 86400).year
            var year = now / 100 * 100 + 100 + short
            while year > now + 50 { year -= 100 }
            return seconds(year, parts[1], number(parts[0], 2), words[2])
        default: return nil
        }
    }

    private static func seconds(_ year: UInt64?, _ month: String, _ day: UInt64?, _ time: String) -> UInt64? {
        let parts = time.split(separator: ":", omittingEmptySubsequences: false).map { number(String($0), 2) }
        guard let year, let day, let month = months.firstIndex(of: month), year >= 1970, day >= 1, parts.count == 3,
            let hour = parts[0], let minute = parts[1], let second = parts[2], hour < 24, minute < 60, second <= 60
        else { return nil }
        let days = CalendarDate(year: year, month: UInt64(month + 1), day: day).daysSince1970
        // A date such as 31 April would be another one.
        guard CalendarDate(daysSince1970: days).day == day else { return nil }
        return days * 86400 + hour * 3600 + minute * 60 + second
    }

    /// Reads a number of exactly `count` digits.
    private static func number(_ text: String, _ count: Int) -> UInt64? {
        guard text.utf8.count == count, text.utf8.allSatisfy({ $0 &- 0x30 < 10 }) else { return nil }
        return UInt64(text)
    }
}
