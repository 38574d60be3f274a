import Foundation

/// Settings and events of monitors.
extension Accounts {
    /// Sets which events are pushed to a device. Registering it again keeps its settings.
    ///
    /// - Throws: a refusal of the kind ``Refusal/Kind/gone`` if the device is not registered.
    public func updateMonitor(_ registration: Registration, _ settings: MonitorSettings) async throws {
        let body = settings.fields
        let _: Success = try await call(
            "PATCH", "api/devices/\(Client.segment(registration.id))/settings", body, isRepeatable: true)
    }

    /// Returns the devices that watch a printer and have notifications on. For back ends.
    public func monitors(of printer: String) async throws -> [Monitor] {
        struct Answer: Decodable { let devices: [Monitor] }
        let answer: Answer = try await call("GET", "api/devices/by-printer/\(Client.segment(printer))", isRepeatable: true)
        return answer.devices
    }

    /// Reports a printer's change of status. For back ends.
    ///
    /// - Parameters:
    ///   - printer: as devices registered it.
    ///   - eventID: idempotency key, 1 to 128 bytes. A repeat within six days does nothing, so lost answers are retried.
    ///     Choose it yourself if your app may call again for the same event.
    @discardableResult
    public func reportStatus(
        of printer: String, from old: PrinterStatus, to new: PrinterStatus, eventID: String = UUID().uuidString
    ) async throws -> PrinterReceipt {
        let body: [String: Client.Field] = [
            "oldStatus": .text(old.rawValue), "newStatus": .text(new.rawValue), "eventId": .text(eventID),
        ]
        return try await call("POST", "api/monitors/\(Client.segment(printer))/status", body, isRepeatable: true)
    }

    /// Reports a printer's progress, 0 to 100 percent. For back ends. The parameters are those of ``reportStatus(of:from:to:eventID:)``.
    @discardableResult
    public func reportProgress(
        of printer: String, percent: Int, eventID: String = UUID().uuidString
    ) async throws -> PrinterReceipt {
        let body: [String: Client.Field] = ["progress": .number(Int64(percent)), "eventId": .text(eventID)]
        return try await call("POST", "api/monitors/\(Client.segment(printer))/progress", body, isRepeatable: true)
    }
}

/// Which events are pushed to a device that watches a printer. The app keeps them: the broker returns them to back ends only.
public struct MonitorSettings: Hashable, Sendable, Codable {
    /// False silences the device and keeps its other settings.
    public var notificationsEnabled = true
    public var onStart = true
    public var onComplete = true
    public var onFailed = true
    public var onPaused = true
    public var onMilestone = true

    /// The settings of a new device: everything is pushed.
    public init() {}

    fileprivate var fields: [String: Client.Field] {
        [
            "notificationsEnabled": .flag(notificationsEnabled), "onStart": .flag(onStart), "onComplete": .flag(onComplete),
            "onFailed": .flag(onFailed), "onPaused": .flag(onPaused), "onMilestone": .flag(onMilestone),
        ]
    }
}

/// A device that watches a printer, as a back end sees it.
public struct Monitor: Hashable, Sendable, Decodable {
    /// ``Registration/id`` of the device.
    public let id: String
    public let settings: MonitorSettings

    private enum CodingKeys: String, CodingKey {
        case id
        case notificationsEnabled = "notifications_enabled"
        case onStart = "on_start"
        case onComplete = "on_complete"
        case onFailed = "on_failed"
        case onPaused = "on_paused"
        case onMilestone = "on_milestone"
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        func isOn(_ key: CodingKeys) throws -> Bool { try container.decode(Int.self, forKey: key) != 0 }
        id = try container.decode(String.self, forKey: .id)
        var settings = MonitorSettings()
        settings.notificationsEnabled = try isOn(.notificationsEnabled)
        settings.onStart = try isOn(.onStart)
        settings.onComplete = try isOn(.onComplete)
        settings.onFailed = try isOn(.onFailed)
        settings.onPaused = try isOn(.onPaused)
        settings.onMilestone = try isOn(.onMilestone)
        self.settings = settings
    }
}

/// A printer's status.
public enum PrinterStatus: BrokerWord {
    case running, complete, failed, paused
    case idle, initializing, prepare, slicing, offline, unknown, unavailable, cancelled, error
    /// Another word. The broker ignores those that it doesn't know.
    case other(String)

    private static let words = Words<Self>([
        .running, .complete, .failed, .paused, .idle, .initializing, .prepare, .slicing, .offline, .unknown, .unavailable,
        .cancelled, .error,
    ])

    /// `finish` is `complete` and `pause` is `paused`, as at the broker.
    public init(rawValue: String) {
        switch rawValue {
        case "finish": self = .complete
        case "pause": self = .paused
        default: self = Self.words[rawValue] ?? .other(rawValue)
        }
    }

    public var rawValue: String {
        switch self {
        case .running: "running"
        case .complete: "complete"
        case .failed: "failed"
        case .paused: "paused"
        case .idle: "idle"
        case .initializing: "init"
        case .prepare: "prepare"
        case .slicing: "slicing"
        case .offline: "offline"
        case .unknown: "unknown"
        case .unavailable: "unavailable"
        case .cancelled: "cancelled"
        case .error: "error"
        case .other(let word): word
        }
    }
}

/// What a monitor pushes.
public enum PrinterEvent: BrokerWord {
    case started, complete, failed, paused, milestone
    /// A word of a later broker.
    case unknown(String)

    private static let words = Words<Self>([.started, .complete, .failed, .paused, .milestone])

    public init(rawValue: String) { self = Self.words[rawValue] ?? .unknown(rawValue) }

    public var rawValue: String {
        switch self {
        case .started: "print_started"
        case .complete: "print_complete"
        case .failed: "print_failed"
        case .paused: "print_paused"
        case .milestone: "progress_milestone"
        case .unknown(let word): word
        }
    }
}

/// What became of a printer's report.
public struct PrinterReceipt: Hashable, Sendable, Decodable {
    /// What is pushed, also if nobody listens. Nil if the change is not pushed.
    public let event: PrinterEvent?
    public let pushes: PushCounts
    /// The broker had handled the report before, so this call did nothing.
    public let isRepeated: Bool
    /// The broker doesn't know the status, and kept nothing.
    public let isIgnored: Bool

    private enum CodingKeys: String, CodingKey {
        case event = "notification"
        case repeated, ignored
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        event = try container.decodeIfPresent(PrinterEvent.self, forKey: .event)
        pushes = try PushCounts(from: decoder)
        isRepeated = try container.decodeIfPresent(Bool.self, forKey: .repeated) ?? false
        isIgnored = try container.decodeIfPresent(String.self, forKey: .ignored) != nil
    }
}
