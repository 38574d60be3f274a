import Foundation
import Testing

@testable import MayflyClient

/// Settings and events of monitors, with the pushes that Apple gets.
@Suite(.timeLimit(.minutes(1)))
struct MonitorTests {
    private let broker = TestBroker.shared
    private let user = "user-\(UUID().uuidString)"
    private let printer = "p1s/\(UUID().uuidString) ä"

    @Test func aPrintFromStartToEnd() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let token = PushToken.random()
        let device = try await accounts.registerMonitor(token, printer: printer)
        let printers = device.table(.printer, ["another", printer])
        func notification(_ number: Int) async throws -> MonitorNotification {
            try #require(MonitorNotification(payload: try await broker.payload(number, to: token), printers: printers))
        }

        let started = try await backEnd.reportStatus(of: printer, from: .idle, to: .running)
        #expect(started.event == .started && started.pushes.queued == 1 && !started.isIgnored && !started.isRepeated)
        let first = try await notification(0)
        #expect(first.event == .started && first.status == .running && first.progress == nil && first.printer == printer)
        #expect(first.threadIdentifier == device.handle(.printer, printer))

        #expect(try await backEnd.reportProgress(of: printer, percent: 51).event == .milestone)
        #expect(try await backEnd.reportProgress(of: printer, percent: 52).event == nil)
        let half = try await notification(1)
        #expect(half.event == .milestone && half.progress == 50 && half.status == .running)

        // The printer's own words.
        let paused = try await backEnd.reportStatus(
            of: printer, from: PrinterStatus(rawValue: "running"), to: PrinterStatus(rawValue: "pause"))
        #expect(paused.event == .paused)
        #expect(try await notification(2).status == .paused)
        #expect(try await backEnd.reportStatus(of: printer, from: .paused, to: .running).event == .started)
        #expect(try await notification(3).event == .started)
        let failed = try await backEnd.reportStatus(of: printer, from: .running, to: .failed, eventID: "e")
        #expect(failed.event == .failed)
        #expect(try await backEnd.reportStatus(of: printer, from: .running, to: .failed, eventID: "e").isRepeated)
        #expect(try await notification(4).event == .failed)
        let ignored = try await backEnd.reportStatus(of: printer, from: .running, to: .other("dreaming"))
        #expect(ignored.isIgnored && ignored.event == nil && ignored.pushes.queued == 0)
        #expect(try await backEnd.reportStatus(of: printer, from: .running, to: .complete).event == .complete)
        #expect(try await notification(5).event == .complete)
        // A printer that this phone doesn't know.
        let stranger = device.table(.printer, ["another"])
        #expect(MonitorNotification(payload: try await broker.payload(to: token), printers: stranger) == nil)
        #expect(MonitorNotification(payload: ["printerState": 7], printers: printers) == nil)
        #expect(MonitorNotification(payload: [:], printers: printers) == nil)
    }

    @Test func settings() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let token = PushToken.random()
        let device = try await accounts.registerMonitor(token, printer: printer)
        #expect(try await backEnd.monitors(of: printer) == [Monitor(id: device.id, settings: MonitorSettings())])
        let all: [WritableKeyPath<MonitorSettings, Bool>] = [\.onStart, \.onComplete, \.onFailed, \.onPaused, \.onMilestone]
        for setting in all {
            var settings = MonitorSettings()
            settings[keyPath: setting] = false
            try await accounts.updateMonitor(device, settings)
            #expect(try await backEnd.monitors(of: printer).map(\.settings) == [settings])
        }
        var silent = MonitorSettings()
        silent.notificationsEnabled = false
        try await accounts.updateMonitor(device, silent)
        #expect(try await backEnd.monitors(of: printer) == [])
        #expect(try await backEnd.reportStatus(of: printer, from: .idle, to: .running).pushes.queued == 0)
        // Renewing keeps them.
        #expect(try await accounts.registerMonitor(token, printer: printer).id == device.id)
        #expect(try await backEnd.monitors(of: printer) == [])
        #expect(try JSONDecoder().decode(MonitorSettings.self, from: JSONEncoder().encode(silent)) == silent)
        try await accounts.deleteMonitor(device)
        try await accounts.deleteMonitor(device)
        let error = await #expect(throws: MayflyError.self) { try await accounts.updateMonitor(device, silent) }
        #expect(error?.refusal?.kind == .gone)
    }
}

extension Monitor {
    fileprivate init(id: String, settings: MonitorSettings) {
        func digit(_ isOn: Bool) -> Int { isOn ? 1 : 0 }
        let json = """
            {"id":"\(id)","notifications_enabled":\(digit(settings.notificationsEnabled)),"on_start":\(digit(settings.onStart)),
            "on_complete":\(digit(settings.onComplete)),"on_failed":\(digit(settings.onFailed)),"on_paused":\(digit(settings.onPaused)),
            "on_milestone":\(digit(settings.onMilestone))}
            """
        self = try! JSONDecoder().decode(Monitor.self, from: Data(json.utf8))
    }
}
