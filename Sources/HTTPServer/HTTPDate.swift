/// `Date: Sun, 06 Nov 1994 08:49:37 GMT` and its line end (RFC 9110 section 5.6.7).
enum HTTPDate {
    private static let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    /// - Parameter seconds: unix time.
    static func line(_ seconds: UInt64) -> [UInt8] {
        let days = Int(seconds / 86400)
        let second = Int(seconds % 86400)
        // Days to a date by counting 400-year eras from 1 March 0000.
        let shifted = days + 719_468
        let era = shifted / 146_097
        let day = shifted - era * 146_097
        let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365
        let dayOfYear = day - (365 * year + year / 4 - year / 100)
        let month = (5 * dayOfYear + 2) / 153
        let dayOfMonth = dayOfYear - (153 * month + 2) / 5 + 1
        let calendarMonth = month < 10 ? month + 3 : month - 9
        let calendarYear = year + era * 400 + (calendarMonth <= 2 ? 1 : 0)
        func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let date = "\(Self.days[days % 7]), \(two(dayOfMonth)) \(months[calendarMonth - 1]) \(calendarYear)"
        return Array("Date: \(date) \(two(second / 3600)):\(two(second / 60 % 60)):\(two(second % 60)) GMT\r\n".utf8)
    }
}
