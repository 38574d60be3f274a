import HTTP2
import Linux
import Testing

@testable import APNsSimulator

/// Every status and reason that APNs has, over a real socket: by a request that earns it, or by a fault.
@Suite(.timeLimit(.minutes(1))) struct ReasonTests {
    /// What is sent instead of a good request.
    struct Earned: Sendable {
        var method = "POST"
        var path: String?
        var changes: [String: String] = [:]
        var without: Set<String> = []
        var again: String?
        var body = payload
    }

    /// docs/simulator.md lists the reasons that no request earns.
    static let earned: [Reason: Earned] = [
        .badCollapseID: Earned(changes: ["apns-collapse-id": String(repeating: "é", count: 33)]),
        .badDeviceToken: Earned(path: "/3/device/abc"),
        .badExpirationDate: Earned(changes: ["apns-expiration": "-1"]),
        .badMessageID: Earned(changes: ["apns-id": "123E4567-E89B-12D3-A456-426655440000"]),
        .badPriority: Earned(changes: ["apns-priority": "7"]),
        .badTopic: Earned(changes: ["apns-topic": "org.example.app.voip"]),
        .duplicateHeaders: Earned(again: "apns-topic"),
        .invalidPushType: Earned(changes: ["apns-push-type": "Alert"]),
        .missingDeviceToken: Earned(path: "/3/device/"),
        .missingTopic: Earned(without: ["apns-topic"]),
        .payloadEmpty: Earned(body: ""),
        .topicDisallowed: Earned(changes: ["apns-topic": "org.example.other"]),
        .invalidProviderToken: Earned(changes: ["authorization": "bearer x"]),
        .missingProviderToken: Earned(without: ["authorization"]),
        .badPath: Earned(path: "/4/device/ab"),
        .methodNotAllowed: Earned(method: "PUT"),
        .payloadTooLarge: Earned(body: #"{"aps":"\#(String(repeating: "x", count: 4096))"}"#),
    ]
    /// Earned by what a connection or a key is: see ConnectionRuleTests and CertificateTests.
    static let earnedElsewhere: Set<Reason> = [
        .expiredProviderToken, .tooManyProviderTokenUpdates, .unrelatedKeyID, .badEnvironmentKeyID, .badCertificate,
        .badCertificateEnvironment,
    ]
    static let byFaultAlone: Set<Reason> = [
        .deviceTokenNotForTopic, .idleTimeout, .forbidden, .badEnvironmentKey, .expiredToken, .unregistered, .tooManyRequests,
        .internalServerError, .serviceUnavailable, .shutdown,
    ]

    @Test func everyReasonHasItsWay() {
        #expect(Set(Self.earned.keys).union(Self.earnedElsewhere).union(Self.byFaultAlone) == Set(Reason.allCases))
    }

    /// The statuses of specs: Apple's "Handling notification responses from APNs".
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

    @Test func requestsEarnTheirReasons() async throws {
        let world = try await World()
        let client = try await world.client()
        for (reason, request) in Self.earned {
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

    private func headers(_ request: Earned, _ world: World) -> HTTP2Headers {
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
    func timestamps(form: TimestampForm?, written: String) async throws {
        let world = try await World()
        var fault = Fault(.unregistered, timestamp: 1_800_000_000_123)
        fault.timestampAs = form
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        let answer = try await world.client().send(world.headers(), payload)
        #expect(answer.status == 410)
        #expect(answer.body == #"{"reason":"Unregistered","timestamp":\#(written)}"#)
    }

    @Test func aTimestampMayBeMissing() async throws {
        let world = try await World()
        var fault = Fault(.expiredToken)
        fault.timestampAs = .missing
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        #expect(try await world.client().send(world.headers(), payload).body == #"{"reason":"ExpiredToken"}"#)
    }
}
