import Linux

/// `Date: Sun, 06 Nov 1994 08:49:37 GMT` and its line end (RFC 9110 section 5.6.7).
enum HTTPDate {
    private static let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    /// - Parameter seconds: unix time.
    static func line(_ seconds: UInt64) -> [UInt8] {
        let days = Int(seconds / 86400)
        let second = Int(seconds % 86400)
        let calendar = CalendarDate(daysSince1970: UInt64(days))
        func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let date = "\(Self.days[days % 7]), \(two(Int(calendar.day))) \(months[Int(calendar.month) - 1]) \(calendar.year)"
        return Array("Date: \(date) \(two(second / 3600)):\(two(second / 60 % 60)):\(two(second % 60)) GMT\r\n".utf8)
    }
}
