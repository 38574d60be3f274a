import Broker
import HTTPServer
import JSON
import WebPush

/// Calls shared by rooms and accounts: Web Push settings and test pushes.
extension API {
    /// Says which key a browser subscribes with. Names nothing of Apple's: nobody needs it, and it would name the apps.
    func pushServices() -> HTTPResponse {
        let service = broker.settings.subscribable
        var response = HTTPResponse.json(200) { json in
            guard let service else { return }
            json.add("webPush") { json in
                json.add("applicationServerKey", service.current.publicKey)
                if let previous = service.keys.dropFirst().first { json.add("previous", previous.publicKey) }
                json.add("longest", PushEndpoint.longest)
            }
        }
        // Pages must learn at once that an operator turned Web Push on, so an empty answer keeps the `no-store` of other answers.
        if service != nil { response.headers = [.init("Cache-Control", "public, max-age=3600")] }
        return response
    }

    /// An app with accounts, as a test names it.
    private enum TestedApp: String, CaseIterable {
        case companion, monitor, calls
    }

    /// Pushes to the caller's own address, for a member of a room or for the user of a JWT.
    func testPush(_ call: Call) async throws -> HTTPResponse {
        // An empty body gets the error of a room's call.
        guard call.request.bodyCount > 0 else { return try await testRoom(call) }
        let (app, printer) = try call.fields { body -> (TestedApp?, [UInt8]?)? in
            guard let text = body.text("app") else { return (nil, nil) }
            guard let app = TestedApp(rawValue: text) else {
                let names = TestedApp.allCases.map(\.rawValue).joined(separator: ", ")
                body.note(.outOfRange("app", allowed: "one of \(names), or absent for a room"))
                return nil
            }
            return (app, app == .monitor ? body.name("printerPrefix") : nil)
        }
        guard let app else { return try await testRoom(call) }
        let receipt: EventReceipt
        switch app {
        case .companion:
            guard let companion = apps.companion else { throw BrokerError.audiencesOff }
            receipt = try await companion.test(try await principal(call), charging: call.charges)
        case .monitor:
            guard let monitor = apps.monitor else { throw BrokerError.audiencesOff }
            receipt = try await monitor.test(try await principal(call), printer: printer, charging: call.charges)
        case .calls:
            guard let calls = apps.calls else { throw BrokerError.audiencesOff }
            receipt = try await calls.test(try await principal(call), charging: call.charges)
        }
        return call.answer(202) { Self.write(receipt, to: &$0) }
    }

    private func testRoom(_ call: Call) async throws -> HTTPResponse {
        let (caller, _) = try caller(call)
        let delivery = try await broker.rooms.test(caller, charging: call.charges)
        return call.answer(202) { $0.add("delivery", delivery.rawValue) }
    }
}
