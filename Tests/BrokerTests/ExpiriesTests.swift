import Synchronization
import Testing

@testable import Broker

/// Lines and alarms before a certificate expires.
@Suite struct ExpiriesTests {
    private static let end: UInt64 = 1_900_000_000
    private static let day: UInt64 = 86_400

    private final class Lines: Sendable {
        let all = Mutex<[(level: Logger.Level, text: String)]>([])
        var log: Logger { Logger { level, text in self.all.withLock { $0.append((level, text)) } } }
        var count: Int { all.withLock(\.count) }
    }

    private func expiry(_ use: String = "node-certificate", _ end: UInt64 = end) -> Expiry {
        Expiry(use, "the certificate", endS: end, remedy: "Renew it.")
    }

    @Test func aWarningThirtyDaysBeforeAndAnAlarmSevenDaysBefore() throws {
        let expiry = expiry()
        #expect(expiry.finding(nowS: Self.end - 30 * Self.day) == nil)
        let first = try #require(expiry.finding(nowS: Self.end - 30 * Self.day + 1))
        #expect(first.level == .warning && !first.hasExpired)
        #expect(first.text == "the certificate expires in 29 days, on 2030-03-17. Renew it.")
        #expect(expiry.finding(nowS: Self.end - 7 * Self.day)?.level == .warning)
        let last = try #require(expiry.finding(nowS: Self.end - 7 * Self.day + 1))
        #expect(last.level == .error && !last.hasExpired && last.text.contains("in 6 days"))
        #expect(expiry.finding(nowS: Self.end - 1)?.hasExpired == false)
        let past = try #require(expiry.finding(nowS: Self.end))
        #expect(past.level == .error && past.hasExpired && past.text.hasPrefix("the certificate expired on 2030-03-17."))
    }

    /// 40 days in steps of ten minutes.
    @Test func oneLineADay() {
        let (lines, metrics) = (Lines(), Metrics())
        let expiries = Expiries(metrics: metrics, log: lines.log)
        expiries.replace("nodes", by: [expiry()])
        var now = Self.end - 40 * Self.day
        while now < Self.end {
            expiries.report(nowS: now)
            now += 600
        }
        let levels = lines.all.withLock { $0.map(\.level) }
        #expect(levels == Array(repeating: .warning, count: 23) + Array(repeating: .error, count: 6))
        #expect(metrics.value(.alarms) == 6)
        // A clock that steps back by years.
        let before = lines.count
        expiries.report(nowS: Self.end - 29 * Self.day)
        #expect(lines.count == before + 1)
    }

    /// A certificate that a reload brings is reported at once. Files that are only read again are not.
    @Test func aReplacedCertificateIsReportedAtOnce() {
        let lines = Lines()
        let expiries = Expiries(metrics: Metrics(), log: lines.log)
        let now = Self.end - Self.day
        expiries.report(nowS: now)
        expiries.replace("tls", by: [expiry("tls-certificate")])
        expiries.report(nowS: now + 600)
        #expect(lines.count == 1)
        expiries.replace("tls", by: [expiry("tls-certificate")])
        expiries.report(nowS: now + 1_200)
        #expect(lines.count == 1)
        expiries.replace("tls", by: [expiry("tls-certificate", Self.end + 1)])
        expiries.report(nowS: now + 1_800)
        #expect(lines.count == 2)
    }

    @Test func aRenewedCertificateIsReportedNoMore() {
        let lines = Lines()
        let expiries = Expiries(metrics: Metrics(), log: lines.log)
        expiries.replace("tls", by: [expiry("tls-certificate", Self.end)])
        expiries.replace("nodes", by: [expiry("node-ca", Self.end + 1), expiry("node-certificate", Self.end + 2)])
        expiries.report(nowS: Self.end - Self.day)
        #expect(lines.count == 3)
        expiries.replace("tls", by: [expiry("tls-certificate", Self.end + 90 * Self.day)])
        expiries.replace("nodes", by: [])
        expiries.report(nowS: Self.end)
        #expect(lines.count == 3)
    }

    /// Several apps may have a certificate each. The metric names no app.
    @Test func theMetricHasTheFirstEndOfEachUse() {
        let expiries = Expiries(metrics: Metrics(), log: Lines().log)
        expiries.replace("apns", by: [expiry("apns-certificate", 30), expiry("apns-certificate", 10), expiry("apns-ca", 20)])
        let samples = expiries.exposition.split(separator: "\n").filter { !$0.hasPrefix("#") }
        let name = "mayfly_certificate_expiry_timestamp_seconds"
        #expect(samples == ["\(name){use=\"apns-ca\"} 20", "\(name){use=\"apns-certificate\"} 10"])
    }
}
