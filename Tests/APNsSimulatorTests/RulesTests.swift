import Testing

@testable import APNsSimulator

private let now: UInt64 = 1_800_000_000
private let mixedCaseDevice = String(repeating: "0aF1", count: 16)
private let bundle = "org.example.app"

/// A request that differs from a valid one in the given headers. Nil removes a header.
struct Case: Sendable, CustomTestStringConvertible {
    let name: String
    let expected: Reason?
    var method = "POST"
    var path = "/3/device/" + mixedCaseDevice
    var headers: [String: String?] = [:]
    var body = #"{"aps":{"alert":"x"}}"#
    var testDescription: String { name }

    init(
        _ name: String, _ expected: Reason?, method: String = "POST", path: String? = nil, _ headers: [String: String?] = [:],
        body: String = #"{"aps":{"alert":"x"}}"#
    ) {
        self.name = name
        self.expected = expected
        self.method = method
        self.path = path ?? "/3/device/" + mixedCaseDevice
        self.headers = headers
        self.body = body
    }
}

@Suite struct RulesTests {
    private let provider: TestProvider
    private let rules: Rules
    private let bearer: String

    init() throws {
        provider = try TestProvider()
        rules = Rules(verifier: ProviderTokenVerifier([try provider.providerKey()], environment: .sandbox))
        bearer = "bearer " + (try provider.token(iat: now - 60))
    }

    private func draft(_ test: Case) -> Draft {
        var fields: [String: String?] = [
            "authorization": bearer, "apns-topic": bundle, "apns-push-type": "alert", "apns-priority": "10",
            "apns-expiration": "0", "apns-id": "123e4567-e89b-12d3-a456-426655440000",
        ]
        fields.merge(test.headers) { $1 }
        return Draft(
            method: test.method, path: test.path, fields: fields.compactMap { name, value in value.map { (name, $0) } },
            body: test.body)
    }

    private func outcome(_ draft: Draft) -> Reason? {
        var rules = rules
        var session = Rules.Session()
        do throws(Rejection) {
            _ = try rules.check(draft.request, on: &session, now: now)
            return nil
        } catch {
            return error.reason
        }
    }

    @Test(arguments: pathCases + headerCases + typeCases + payloadCases)
    func requestsGetTheirVerdict(_ test: Case) {
        #expect(outcome(draft(test)) == test.expected)
    }

    private static let pathCases = [
        Case("a good request", nil),
        Case("GET", .methodNotAllowed, method: "GET"),
        Case("another path", .badPath, path: "/"),
        Case("an older version's path", .badPath, path: "/2/mixedCaseDevice/" + mixedCaseDevice),
        Case("a path below the device", .badPath, path: "/3/device/" + mixedCaseDevice + "/x"),
        Case("a query", .badPath, path: "/3/device/" + mixedCaseDevice + "?x=1"),
        Case("no device token", .missingDeviceToken, path: "/3/device/"),
        Case("an odd number of digits", .badDeviceToken, path: "/3/device/abc"),
        Case("a token that is not hex", .badDeviceToken, path: "/3/device/zz"),
        Case("a token of 1 byte", nil, path: "/3/device/00"),
        Case("a token of 100 bytes", nil, path: "/3/device/" + String(repeating: "ab", count: 100)),
        Case("a token of 101 bytes", .badDeviceToken, path: "/3/device/" + String(repeating: "ab", count: 101)),
    ]

    private static let headerCases = [
        Case("no apns-id", nil, ["apns-id": nil]),
        Case("an apns-id in capitals", .badMessageID, ["apns-id": "123E4567-E89B-12D3-A456-426655440000"]),
        Case("an apns-id without hyphens", .badMessageID, ["apns-id": "123e4567e89b12d3a456426655440000"]),
        Case("an empty apns-id", .badMessageID, ["apns-id": ""]),
        Case("no expiration", nil, ["apns-expiration": nil]),
        Case("an expiration", nil, ["apns-expiration": "1800000600"]),
        Case("a negative expiration", .badExpirationDate, ["apns-expiration": "-1"]),
        Case("an expiration that is a date", .badExpirationDate, ["apns-expiration": "2026-01-01"]),
        Case("an empty expiration", .badExpirationDate, ["apns-expiration": ""]),
        Case("an expiration out of range", .badExpirationDate, ["apns-expiration": "99999999999999999999"]),
        Case("no priority", nil, ["apns-priority": nil]),
        Case("priority 1", nil, ["apns-priority": "1"]),
        Case("priority 5", nil, ["apns-priority": "5"]),
        Case("priority 7", .badPriority, ["apns-priority": "7"]),
        Case("priority +5", .badPriority, ["apns-priority": "+5"]),
        Case("priority high", .badPriority, ["apns-priority": "high"]),
        Case("a collapse id of 64 bytes", nil, ["apns-collapse-id": String(repeating: "x", count: 64)]),
        Case("a collapse id of 65 bytes", .badCollapseID, ["apns-collapse-id": String(repeating: "x", count: 65)]),
        Case("a collapse id of 33 letters and 66 bytes", .badCollapseID, ["apns-collapse-id": String(repeating: "é", count: 33)]),
        Case("no authorization", .missingProviderToken, ["authorization": nil]),
        Case("an empty authorization", .missingProviderToken, ["authorization": ""]),
        Case("another scheme", .invalidProviderToken, ["authorization": "basic abc"]),
        Case("no token", .invalidProviderToken, ["authorization": "bearer "]),
    ]

    private static let typeCases = [
        Case("no topic", .missingTopic, ["apns-topic": nil]),
        Case("an empty topic", .missingTopic, ["apns-topic": ""]),
        Case("a topic that can't be one", .badTopic, ["apns-topic": "org.example.app voip"]),
        Case("another team's topic", .topicDisallowed, ["apns-topic": "org.example.other"]),
        Case("a topic that only begins alike", .topicDisallowed, ["apns-topic": "org.example.app2"]),
        Case("a topic of no push type", .badTopic, ["apns-topic": "org.example.app.watch"]),
        Case("voip on the plain topic", .badTopic, ["apns-push-type": "voip"]),
        Case("alert on the voip topic", .badTopic, ["apns-topic": "org.example.app.voip"]),
        Case("an unknown push type", .invalidPushType, ["apns-push-type": "Alert"]),
        Case("no push type", nil, ["apns-push-type": nil]),
        Case("no push type, voip topic", nil, ["apns-push-type": nil, "apns-topic": "org.example.app.voip"]),
        Case("voip", nil, ["apns-push-type": "voip", "apns-topic": "org.example.app.voip"]),
        Case("voip at 5", .badPriority, ["apns-push-type": "voip", "apns-topic": "org.example.app.voip", "apns-priority": "5"]),
        Case("live activity at 5", nil, liveActivity(priority: "5")),
        Case("live activity at 10", nil, liveActivity(priority: "10")),
        Case("live activity at 1", .badPriority, liveActivity(priority: "1")),
        Case("push to talk", nil, ["apns-push-type": "pushtotalk", "apns-topic": "org.example.app.voip-ptt"]),
        Case(
            "push to talk that is stored", .badExpirationDate,
            ["apns-push-type": "pushtotalk", "apns-topic": "org.example.app.voip-ptt", "apns-expiration": "1800000600"]),
        Case("location", nil, ["apns-push-type": "location", "apns-topic": "org.example.app.location-query"]),
        Case("complication", nil, ["apns-push-type": "complication", "apns-topic": "org.example.app.complication"]),
        Case("file provider", nil, ["apns-push-type": "fileprovider", "apns-topic": "org.example.app.pushkit.fileprovider"]),
        Case("widgets", nil, ["apns-push-type": "widgets", "apns-topic": "org.example.app.push-type.widgets"]),
        Case("controls", nil, ["apns-push-type": "controls", "apns-topic": "org.example.app.push-type.controls"]),
        Case("background", nil, background(priority: "5"), body: silent),
        Case("background at 10", .badPriority, background(priority: "10"), body: silent),
        Case("background at the default", .badPriority, background(priority: nil), body: silent),
        Case("background that shows something", .invalidPushType, background(priority: "5")),
        Case(
            "background with a sound", .invalidPushType, background(priority: "5"),
            body: #"{"aps":{"content-available":1,"sound":"x"}}"#),
    ]

    private static let silent = #"{"aps":{"content-available":1}}"#

    private static func liveActivity(priority: String) -> [String: String?] {
        ["apns-push-type": "liveactivity", "apns-topic": "org.example.app.push-type.liveactivity", "apns-priority": priority]
    }

    private static func background(priority: String?) -> [String: String?] {
        ["apns-push-type": "background", "apns-priority": priority]
    }

    private static let payloadCases = [
        Case("no body", .payloadEmpty, body: ""),
        Case("an empty object", .payloadEmpty, body: "{}"),
        Case("a list", .payloadEmpty, body: "[1]"),
        Case("no JSON", .payloadEmpty, body: #"{"aps":"#),
        Case("4096 bytes", nil, body: payload(4096)),
        Case("4097 bytes", .payloadTooLarge, body: payload(4097)),
        Case("voip, 5120 bytes", nil, ["apns-push-type": "voip", "apns-topic": "org.example.app.voip"], body: payload(5120)),
        Case(
            "voip, 5121 bytes", .payloadTooLarge, ["apns-push-type": "voip", "apns-topic": "org.example.app.voip"],
            body: payload(5121)),
    ]

    private static func payload(_ size: Int) -> String {
        let frame = #"{"aps":{},"x":""}"#
        return frame.dropLast(2) + String(repeating: "x", count: size - frame.utf8.count) + "\"}"
    }

    @Test func acceptedRequestsHaveAPushType() throws {
        var rules = rules
        var session = Rules.Session()
        let request = draft(Case("good", nil)).request
        #expect(try rules.check(request, on: &session, now: now) == .alert)
        #expect(request.token == mixedCaseDevice.lowercased())
        #expect(session.provider?.issuedAt == now - 60)
    }

    @Test(arguments: ["apns-id", "apns-topic", "authorization", "apns-priority", "x-other"])
    func repeatedHeadersAreRefused(name: String) {
        var draft = draft(Case("good", nil, ["x-other": "1"]))
        draft.fields.append((name, "again"))
        #expect(outcome(draft) == .duplicateHeaders)
    }

    @Test func checksHaveAFixedOrder() {
        // Everything is wrong at first. Each correction shows the next error.
        var draft = Draft(method: "GET", path: "/x", fields: [], body: "")
        #expect(outcome(draft) == .badPath)
        draft.path = "/3/device/"
        #expect(outcome(draft) == .methodNotAllowed)
        draft.method = "POST"
        #expect(outcome(draft) == .missingProviderToken)
        draft.fields.append(("authorization", bearer))
        #expect(outcome(draft) == .missingDeviceToken)
        draft.path += "00"
        #expect(outcome(draft) == .missingTopic)
        draft.fields.append(("apns-topic", bundle))
        #expect(outcome(draft) == .payloadEmpty)
    }
}
