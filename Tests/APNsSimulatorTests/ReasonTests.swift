import HTTP2
import Linux
import Testing

@testable import APNsSimulator

/// Every status and reason of APNs over a real socket, caused by an invalid request or a fault.
@Suite(.timeLimit(.minutes(1))) struct ReasonTests {
    /// An invalid request.
    struct Invalid: Sendable {
        var method = "POST"
        var path: String?
        var changes: [String: String] = [:]
        var without: Set<String> = []
        var again: String?
        var body = payload
    }

    /// docs/simulator.md lists the reasons that no request causes.
    static let invalid: [Reason: Invalid] = [
        .badCollapseID: Invalid(changes: ["apns-collapse-id": String(repeating: "é", count: 33)]),
        .badDeviceToken: Invalid(path: "/3/device/abc"),
        .badExpirationDate: Invalid(changes: ["apns-expiration": "-1"]),
        .badMessageID: Invalid(changes: ["apns-id": "123E4567-E89B-12D3-A456-426655440000"]),
        .badPriority: Invalid(changes: ["apns-priority": "7"]),
        .badTopic: Invalid(changes: ["apns-topic": "org.example.app.voip"]),
        .duplicateHeaders: Invalid(again: "apns-topic"),
        .invalidPushType: Invalid(changes: ["apns-push-type": "Alert"]),
        .missingDeviceToken: Invalid(path: "/3/device/"),
        .missingTopic: Invalid(without: ["apns-topic"]),
        .payloadEmpty: Invalid(body: ""),
        .topicDisallowed: Invalid(changes: ["apns-topic": "org.example.other"]),
        .invalidProviderToken: Invalid(changes: ["authorization": "bearer x"]),
        .missingProviderToken: Invalid(without: ["authorization"]),
        .badPath: Invalid(path: "/4/device/ab"),
        .methodNotAllowed: Invalid(method: "PUT"),
        .payloadTooLarge: Invalid(body: #"{"aps":"\#(String(repeating: "x", count: 4096))"}"#),
    ]
    /// Caused by the state of a connection or a key, see ConnectionRuleTests and CertificateTests.
    static let testedElsewhere: Set<Reason> = [
        .expiredProviderToken, .tooManyProviderTokenUpdates, .unrelatedKeyID, .badEnvironmentKeyID, .badCertificate,
        .badCertificateEnvironment,
    ]
    static let onlyByFault: Set<Reason> = [
        .deviceTokenNotForTopic, .idleTimeout, .forbidden, .badEnvironmentKey, .expiredToken, .unregistered, .tooManyRequests,
        .internalServerError, .serviceUnavailable, .shutdown,
    ]

    @Test func everyReasonIsTested() {
        #expect(Set(Self.invalid.keys).union(Self.testedElsewhere).union(Self.onlyByFault) == Set(Reason.allCases))
    }

    /// Source: Apple, "Handling notification responses from APNs".
    static let statuses: [(Int, [Reason])] = [
        (
            400,
            [
                .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic,
                .deviceTokenNotForTopic,
                .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken, .missingTopic, .payloadEmpty,
                .topicDisallowed,
            ]
        ),
        (
            403,
            [
                .badCertificate, .badCertificateEnvironment, .expiredProviderToken, .forbidden, .invalidProviderToken,
                .missingProviderToken, .unrelatedKeyID, .badEnvironmentKeyID, .badEnvironmentKey,
            ]
        ), (404, [.badPath]), (405, [.methodNotAllowed]), (410, [.expiredToken, .unregistered]), (413, [.payloadTooLarge]),
        (429, [.tooManyProviderTokenUpdates, .tooManyRequests]), (500, [.internalServerError]),
        (503, [.serviceUnavailable, .shutdown]),
    ]

    @Test func requestsGetTheirReasons() async throws {
        let world = try await World()
        let client = try await world.client()
        for (reason, request) in Self.invalid {
            let answer = try await client.send(headers(request, world), request.body)
            #expect(answer.status == reason.status, "\(reason)")
            #expect(answer.body == #"{"reason":"\#(reason.rawValue)"}"#)
        }
        #expect(try await client.send(world.headers(), payload).status == 200)
    }

    @Test func everyReasonCanBePlanned() async throws {
        let world = try await World()
        let client = try await world.client()
        for (status, reasons) in Self.statuses {
            for reason in reasons {
                await world.simulator.setFaults(FaultPlan(next: [Fault(reason)]))
                let answer = try await client.send(world.headers(), payload)
                #expect(answer.status == status)
                #expect(JSON(parsing: Array(answer.body.utf8))?["reason"] == .string(reason.rawValue))
                #expect((JSON(parsing: Array(answer.body.utf8))?["timestamp"] != nil) == (status == 410))
            }
        }
        #expect(Self.statuses.flatMap(\.1).count == Reason.allCases.count)
    }

    private func headers(_ request: Invalid, _ world: World) -> HTTP2Headers {
        var headers = HTTP2Headers(capacity: 512)
        let good = world.headers(request.changes)
        for index in 0..<good.count where !request.without.contains(good[index].name) {
            let (name, value) = good[index]
            switch name {
            case ":method": headers.append(name, request.method)
            case ":path": headers.append(name, request.path ?? value)
            default: headers.append(name, value)
            }
        }
        if let again = request.again, let value = headers[again] { headers.append(again, value) }
        return headers
    }

    // MARK: 410

    @Test(
        arguments: [
            (nil, "1800000000123"), (.seconds, "1800000000"), (.text, #""1800000000123""#), (.negative, "-1800000000123"),
            (.huge, "18446744073709551616"), (.twice, #"1800000000123,"timestamp":1800000000123"#),
        ] as [(TimestampForm?, String)])
    func timestampsHaveTheirForm(form: TimestampForm?, written: String) async throws {
        let world = try await World()
        var fault = Fault(.unregistered, timestamp: 1_800_000_000_123)
        fault.timestampAs = form
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        let answer = try await world.client().send(world.headers(), payload)
        #expect(answer.status == 410)
        #expect(answer.body == #"{"reason":"Unregistered","timestamp":\#(written)}"#)
    }

    @Test func timestampCanBeMissing() async throws {
        let world = try await World()
        var fault = Fault(.expiredToken)
        fault.timestampAs = .missing
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        #expect(try await world.client().send(world.headers(), payload).body == #"{"reason":"ExpiredToken"}"#)
    }
}
