import Foundation
import Testing

@testable import MayflyClient

/// What an app reads of pushes, without a broker.
struct NotificationTests {
    private let registration = try! Registration.sample()

    // MARK: The policies that a broker has

    private func policy(_ name: String) throws -> [String: Any] {
        let data = try Data(contentsOf: repository.appending(path: "policies/\(name).json"))
        let policy = try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
        return try #require(policy["templates"] as? [String: Any])
    }

    /// The words that a field of the templates may have.
    private func words(_ field: String, _ templates: [String: Any]) throws -> Set<String> {
        Set(
            templates.values.flatMap { template in
                let fields = (template as? [String: Any])?["fields"] as? [String: Any]
                return (fields?[field] as? [String: Any])?["values"] as? [String] ?? []
            })
    }

    @Test func everyWordOfACompanionIsKnown() throws {
        let templates = try policy("companion")
        for (name, template) in templates {
            let template = try #require(template as? [String: Any])
            if let category = template["category"] as? String { #expect(CompanionCategory(rawValue: category) != nil, "\(name)") }
            guard template["pushType"] as? String != "liveactivity" else { continue }
            var payload = try #require(template["constants"] as? [AnyHashable: Any])
            for field in ["requestId", "questionId", "sessionId"] { payload[field] = "h" }
            #expect(CompanionNotification(payload: payload, sessions: HandleTable()) != nil, "\(name)")
        }
        let states = try words("status", templates)
        #expect(states.count == 6)
        for word in states { if case .unknown = SessionState(rawValue: word) { Issue.record("\(word)") } }
        let reasons = try words("reason", templates)
        #expect(reasons.count == 3)
        for word in reasons {
            let reason = CompanionNotification.ClearingReason(rawValue: word)
            if case .unknown = reason { Issue.record("\(word)") }
            #expect(reason.rawValue == word)
        }
        for word in try words("handedOffTo", templates) {
            if case .unknown = ClientType(rawValue: word) { Issue.record("\(word)") }
        }
    }

    @Test func everyWordOfAMonitorAndOfCallsIsKnown() throws {
        let templates = try policy("monitor")
        #expect(templates.count == 5)
        for (name, template) in templates {
            let constants = (template as? [String: Any])?["constants"] as? [String: Any]
            let state = try #require(constants?["printerState"] as? [String: Any])
            if case .unknown = PrinterEvent(rawValue: name) { Issue.record("\(name)") }
            #expect(state["type"] as? String == name)
            let status = try #require(state["status"] as? String)
            if case .other = PrinterStatus(rawValue: status) { Issue.record("\(status)") }
        }
        let media = try words("callType", policy("calls"))
        #expect(media == ["audio", "video"])
        for word in media { if case .unknown = CallNotification.Media(rawValue: word) { Issue.record("\(word)") } }
    }

    @Test func everyWordOfAPrinterIsKnown() throws {
        let text = try String(contentsOf: repository.appending(path: "docs/openapi.yaml"), encoding: .utf8)
        let schema = try #require(text.range(of: "\n    PrinterState:\n"))
        let list = try #require(text[schema.upperBound...].firstMatch(of: /enum: \[([^\]]+)\]/))
        let words = list.1.split(separator: ",").map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }
        #expect(words.count == 15)
        for word in words {
            let status = PrinterStatus(rawValue: word)
            if case .other = status { Issue.record("\(word)") }
            #expect(status.rawValue == ["finish": "complete", "pause": "paused"][word, default: word])
        }
    }

    @Test func wordsAreEqualByTheirTexts() throws {
        let (known, made) = (SessionState.idle, SessionState.unknown("idle"))
        #expect(known == made)
        #expect(!(known != made))
        #expect(Set([known, made]).count == 1)
        #expect(known != .unknown("later"))
        let kept = try JSONDecoder().decode(
            [PrinterStatus].self, from: JSONEncoder().encode([PrinterStatus.initializing, .other("x")]))
        #expect(kept == [.initializing, .other("x")])
    }

    // MARK: Pushes of a later broker, or of strangers

    @Test func whatIsNoCompanionsPush() {
        func read(_ payload: [AnyHashable: Any]) -> CompanionNotification? {
            CompanionNotification(payload: payload, sessions: registration.table(.session, ["s"]))
        }
        for payload: [AnyHashable: Any] in [
            [:], ["type": 7], ["type": "something_new"], ["type": "approval"], ["type": "approval", "requestId": 7],
            ["type": "question"], ["type": "clear_approval", "reason": "timed_out"], ["roomId": "h"],
        ] {
            #expect(read(payload) == nil, "\(payload)")
        }
        let approval = read(["type": "approval", "requestId": "r", "expiresAt": "soon", "sessionId": ["s"]])
        #expect(approval?.kind == .approval(requestID: "r", expiresAt: nil))
        #expect(approval?.sessionHandle == nil && approval?.threadIdentifier == "")
        let time = read(["type": "approval", "requestId": "r", "expiresAt": "2026-01-02T03:04:05Z"])
        #expect(time?.kind == .approval(requestID: "r", expiresAt: Date(timeIntervalSince1970: 1_767_323_045)))
        let later = read(["type": "clear_approval", "requestId": "r", "reason": "bored"])
        #expect(later?.kind == .clearApproval(requestID: "r", reason: .unknown("bored")))
        #expect(read(["type": "session_handoff", "handedOffTo": "watch"])?.kind == .handoff(to: .unknown("watch")))
        // Without a handle it clears nothing, also no push without one.
        #expect(read(["type": "clear_session"])?.clears([:]) == false)
        // Only clearing pushes clear.
        #expect(read(["type": "approval", "requestId": "r"])?.clears(["requestId": "r"]) == false)
    }

    @Test func eachCallIsReported() {
        let callers = registration.table(.uid, ["alice"])
        for payload: [AnyHashable: Any] in [[:], ["callerUid": 7, "sessionId": ["x"], "callType": 1], ["aps": "x"]] {
            let call = CallNotification(payload: payload, callers: callers)
            #expect(call.caller == nil && call.callerHandle == "" && call.sessionHandle == "" && call.media == .unknown(""))
            #expect(!call.isAbout("", registration))
        }
    }

    @Test func aTableKnowsItsNamesOnly() throws {
        let table = registration.table(.session, ["a", "b"])
        #expect(table.name(try #require(registration.handle(.session, "a"))) == "a")
        #expect(table.name(try #require(registration.handle(.session, "c"))) == nil)
        #expect(table.name(try #require(registration.handle(.printer, "a"))) == nil)
        #expect(HandleTable().name("") == nil)
        #expect(try JSONDecoder().decode(HandleTable.self, from: JSONEncoder().encode(table)) == table)
    }

    @Test func onlyRegistrationsAreRead() throws {
        for (id, service) in [
            ("tok_AAECAwQFBgcICQoLDA0ODw", Registration.Service.companion), ("lat_AAECAwQFBgcICQoLDA0ODw", .companion),
            ("voip_AAECAwQFBgcICQoLDA0ODw", .calls), ("AAECAwQFBgcICQoLDA0ODw", .monitor), ("tok_AwQFBgcICQoLDA0ODw", .monitor),
        ] {
            #expect(try Registration.sample(id: id).service == service, "\(id)")
        }
        for id in [
            "", "tok_", "tok_AAECAwQFBgcICQoLDA0OD", "tok_AAECAwQFBgcICQoLDA0OD/", "../../../../../../room/",
            "xyz_AAECAwQFBgcICQoLDA0ODw",
        ] {
            #expect(throws: DecodingError.self) { try Registration.sample(id: id) }
        }
        #expect(throws: DecodingError.self) { try Registration.sample(ref: "r") }
        #expect(throws: DecodingError.self) { try Registration.sample(handleKey: "k") }
    }
}

extension Registration {
    static func sample(
        id: String = "tok_AAECAwQFBgcICQoLDA0ODw", ref: String = "00112233445566778899aabbccddeeff",
        handleKey: String = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    ) throws -> Registration {
        let fields = ["tokenId": id, "ref": ref, "handleKey": handleKey]
        var json = try JSONSerialization.jsonObject(with: JSONEncoder().encode(fields)) as! [String: Any]
        json["expiresAt"] = 0
        return try JSONDecoder().decode(Registration.self, from: JSONSerialization.data(withJSONObject: json))
    }
}
