import Broker
import HTTPServer
import JSON
import Vocabulary

/// Routes of the monitor: devices, and events of the printers that they watch.
extension API {
    // MARK: Devices

    func registerMonitor(_ call: Call) async throws -> HTTPResponse {
        let (monitor, principal) = try await monitor(call)
        let asked = try Self.monitorFields(call) { body in
            let address = body.address("apnsToken", .alert, of: broker.settings, required: true)
            let printer = body.name("printerPrefix")
            return address.map { (address: $0, printer: printer) }
        }
        let registered = try await monitor.register(
            principal, address: asked.address, printer: asked.printer, charging: call.charges)
        return call.answer { json in
            json.add("success", true)
            json.add("deviceId", registered.id.base64url)
            json.add("message", registered.isNew ? "Device registered" : "Device updated")
            Self.write(registered, to: &json)
        }
    }

    func setMonitor(_ call: Call) async throws -> HTTPResponse {
        let (monitor, principal) = try await monitor(call)
        let (adding, removing) = try Self.monitorFields(call) { body in
            var (adding, removing): (DevicePreferences, DevicePreferences) = ([], [])
            for (name, _, preference) in Self.preferences {
                switch body.choice(name) {
                case true?: adding.insert(preference)
                case false?: removing.insert(preference)
                case nil: break
                }
            }
            return (adding, removing)
        }
        guard let id = RegistrationID(base64url: call.name),
            try await monitor.set(principal, device: id, adding: adding, removing: removing)
        else {
            throw BrokerError.deviceNotFound
        }
        return Self.success("Settings updated", call)
    }

    private static let preferences: [(name: String, column: String, DevicePreferences)] = [
        ("notificationsEnabled", "notifications_enabled", .enabled), ("onStart", "on_start", .start),
        ("onComplete", "on_complete", .complete), ("onFailed", "on_failed", .failed), ("onPaused", "on_paused", .paused),
        ("onMilestone", "on_milestone", .milestone),
    ]

    func deleteMonitor(_ call: Call) async throws -> HTTPResponse {
        let (monitor, principal) = try await monitor(call)
        // A device that doesn't exist or belongs to another user gets the same answer.
        if let id = RegistrationID(base64url: call.name) { try await monitor.delete(principal, device: id) }
        return Self.success("Device unregistered", call)
    }

    private static func success(_ message: String, _ call: Call) -> HTTPResponse {
        call.answer { json in
            json.add("success", true)
            json.add("message", message)
        }
    }

    func monitors(_ call: Call) async throws -> HTTPResponse {
        let (monitor, principal) = try await monitor(call)
        guard principal.isBackEnd else { throw BrokerError.backEndOnly }
        let devices = try await monitor.devices(principal, watching: try Self.printer(call.name))
        return call.answer { json in
            json.add("success", true)
            json.add("devices", objects: devices) { json, device in
                json.add("id", device.id.base64url)
                for (_, column, preference) in Self.preferences {
                    json.add(column, device.preferences.contains(preference) ? 1 : 0)
                }
            }
        }
    }

    // MARK: Printers

    /// A report from a printer's server.
    private enum Report {
        case event(PrinterEvent)
        /// A status that the broker doesn't know. Servers also send statuses of their own, which cause no push.
        case unknownStatus
    }

    func takeStatus(_ call: Call) async throws -> HTTPResponse {
        try await take(call) { body in
            let old = body.text("oldStatus", required: true)
            let new = body.text("newStatus", required: true)
            guard let old, let new else { return nil }
            guard let old = PrinterStatus(rawValue: old), let new = PrinterStatus(rawValue: new) else { return .unknownStatus }
            return .event(.status(from: old, to: new))
        }
    }

    func takeProgress(_ call: Call) async throws -> HTTPResponse {
        try await take(call) { body in
            body.percentage("progress", required: true).map { .event(.progress($0)) }
        }
    }

    private func take(
        _ call: Call, _ read: (RequestBody) -> Report?
    ) async throws -> HTTPResponse {
        let (monitor, principal) = try await monitor(call)
        guard principal.isBackEnd else { throw BrokerError.backEndOnly }
        let printer = try Self.printer(call.name)
        let (report, eventID) = try Self.monitorFields(call) { body in
            let report = read(body)
            let eventID = body.name("eventId")
            return report.map { ($0, eventID) }
        }
        guard case .event(let event) = report else {
            return call.answer { json in
                json.add("success", true)
                json.add("pushes", 0)
                json.add("ignored", "unknown_status")
            }
        }
        let (news, receipt) = try await monitor.take(
            event, of: printer, eventID: eventID, from: principal, charging: call.charges)
        return call.answer(202) { Self.write(receipt, notification: news?.template, to: &$0) }
    }

    private func monitor(_ call: Call) async throws -> (Monitor, Principal) {
        guard let monitor = apps.monitor else { throw BrokerError.audiencesOff }
        return (monitor, try await principal(call))
    }

    private static func printer(_ segment: Substring) throws -> [UInt8] {
        do {
            return try name(segment, "prefix")
        } catch let error as BrokerError {
            throw InvalidRequest([error], summary: invalid)
        }
    }

    /// The text of the printer monitor's own server, which clients expect.
    private static let invalid = "Invalid request"

    private static func monitorFields<Value>(
        _ call: Call, _ read: (RequestBody) -> Value?
    ) throws -> Value {
        do {
            return try call.fields(read)
        } catch let error as InvalidRequest {
            throw InvalidRequest(error.errors, summary: invalid)
        }
    }
}
