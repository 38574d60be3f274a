import EventLoop
import Linux
import TLS
import Testing

@testable import APNsSimulator

/// What APNs holds a connection to: its streams, its team, its key.
@Suite(.timeLimit(.minutes(1))) struct ConnectionRuleTests {
    private static func reason(_ reason: Reason) -> String { #"{"reason":"\#(reason.rawValue)"}"# }

    // MARK: Streams

    @Test func theNumberOfStreamsIsConfigurable() async throws {
        let world = try await World { configuration, _ in configuration.streams = 7 }
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        #expect(await client.streamsAllowed == 7)
    }

    @Test func aRejectedProviderFallsBackToOneStreamAndRecovers() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        #expect(await client.streamsAllowed == 1000)
        #expect(try await client.send(world.headers(["authorization": "bearer x"]), payload).status == 403)
        #expect(await client.streamsAllowed == 1)
        // Any other refusal changes nothing.
        #expect(try await client.send(world.headers(["apns-priority": "3"]), payload).status == 400)
        #expect(await client.streamsAllowed == 1)
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.streamsAllowed == 1000)
        // A planned rejection is one too.
        await world.simulator.setFaults(FaultPlan(next: [Fault(.expiredProviderToken)]))
        #expect(try await client.send(world.headers(), payload).status == 403)
        #expect(await client.streamsAllowed == 1)
    }

    @Test func aFaultSetsTheNumberAndItStays() async throws {
        let world = try await World()
        let client = try await world.client()
        var fault = Fault()
        fault.streams = 3
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.streamsAllowed == 3)
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.streamsAllowed == 3)
        fault.streams = 50
        await world.simulator.setFaults(FaultPlan(next: [fault]))
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.streamsAllowed == 50)
    }

    @Test func whoExceedsTheNumberIsToldToGoAway() async throws {
        let world = try await World()
        var silent = Fault()
        silent.silent = true
        await world.simulator.setFaults(FaultPlan(always: [silent]))
        let client = try await world.client()
        let first = Task { try await client.send(world.headers(), payload) }
        while await client.streamsAllowed != 1000 { try await world.loop.sleep(1) }
        var fewer = silent
        fewer.streams = 2
        await world.simulator.setFaults(FaultPlan(next: [fewer], always: [silent]))
        let second = Task { try await client.send(world.headers(), payload) }
        while await client.streamsAllowed != 2 { try await world.loop.sleep(1) }
        // Two are open, and this one is a third.
        try await client.sendBytes(TestClient.head(world.headers(), stream: 5))
        await client.untilClosed()
        #expect(await client.goAways.count == 1)
        #expect(await client.goAways.first?.contains("max concurrent streams exceeded") == true)
        for task in [first, second] { await #expect(throws: TestFailure.self) { try await task.value } }
    }

    // MARK: Teams and keys

    @Test func severalAppsTeamsAndKeys() async throws {
        let other = try TestProvider()
        let world = try await World { configuration, provider in
            configuration.keys = [
                try provider.providerKey(), try provider.providerKey("KEY0000002", ["org.example.second", "org.example.third"]),
                try other.providerKey("KEY0000003", team: "TEAM000002", ["org.example.fourth"]),
            ]
        }
        let now = Clock.wallMs / 1000
        let ways: [(String, [String])] = [
            (try world.provider.token(iat: now), ["org.example.app"]),
            (try world.provider.token(iat: now, keyID: "KEY0000002"), ["org.example.second", "org.example.third"]),
            (try other.token(iat: now, keyID: "KEY0000003", team: "TEAM000002"), ["org.example.fourth"]),
        ]
        for (token, topics) in ways {
            let client = try await world.client()
            for topic in ways.flatMap(\.1) {
                let answer = try await client.send(
                    world.headers(["authorization": "bearer " + token, "apns-topic": topic]), payload)
                #expect(answer.status == (topics.contains(topic) ? 200 : 400))
                if answer.status != 200 { #expect(answer.body == Self.reason(.topicDisallowed)) }
            }
        }
        // Right key, wrong team, and the other way round.
        for token in [
            try world.provider.token(iat: now, keyID: "KEY0000001", team: "TEAM000002"),
            try world.provider.token(iat: now, keyID: "KEY0000003", team: "TEAM000002"),
        ] {
            let answer = try await world.client().send(world.headers(["authorization": "bearer " + token]), payload)
            #expect(answer.body == Self.reason(.invalidProviderToken))
        }
    }

    @Test func aConnectionKeepsItsKeyAndItsTeam() async throws {
        let world = try await World { configuration, provider in
            configuration.keys += [
                try provider.providerKey("KEY0000002"), try provider.providerKey("KEY0000003", team: "TEAM000002"),
            ]
        }
        let now = Clock.wallMs / 1000
        let client = try await world.client()
        #expect(try await client.send(world.headers(), payload).status == 200)
        let key = try world.provider.token(iat: now, keyID: "KEY0000002")
        let team = try world.provider.token(iat: now, keyID: "KEY0000003", team: "TEAM000002")
        let unrelated = try await client.send(world.headers(["authorization": "bearer " + key]), payload)
        #expect(unrelated.status == 403)
        #expect(unrelated.body == Self.reason(.unrelatedKeyID))
        #expect(
            try await client.send(world.headers(["authorization": "bearer " + team]), payload).body
                == Self.reason(.invalidProviderToken))
        #expect(try await client.send(world.headers(), payload).status == 200)
        for token in [key, team] {
            let fresh = try await world.client()
            #expect(try await fresh.send(world.headers(["authorization": "bearer " + token]), payload).status == 200)
        }
    }

    @Test(arguments: [true, false])
    func aKeyOfTheOtherEnvironmentIsRefused(isSandbox: Bool) async throws {
        let world = try await World(isSandbox: isSandbox) { configuration, provider in
            configuration.keys = [
                try provider.providerKey("KEY0000001", environments: [.production]),
                try provider.providerKey("KEY0000002", environments: [.sandbox]),
            ]
        }
        let now = Clock.wallMs / 1000
        for (key, fits) in [("KEY0000001", !isSandbox), ("KEY0000002", isSandbox)] {
            let token = try world.provider.token(iat: now, keyID: key)
            let answer = try await world.client().send(world.headers(["authorization": "bearer " + token]), payload)
            #expect(answer.status == (fits ? 200 : 403))
            if !fits { #expect(answer.body == Self.reason(.badEnvironmentKeyID)) }
            #expect((answer.headers["apns-unique-id"] != nil) == (fits && isSandbox))
        }
    }

    @Test func tokensAgeAndMayNotChangeOften() async throws {
        let world = try await World()
        let now = Clock.wallMs / 1000
        let old = try world.provider.token(iat: now - 3700)
        let expired = try await world.client().send(world.headers(["authorization": "bearer " + old]), payload)
        #expect((expired.status, expired.body) == (403, Self.reason(.expiredProviderToken)))
        let client = try await world.client()
        #expect(try await client.send(world.headers(), payload).status == 200)
        let again = try world.provider.token(iat: now)
        let often = try await client.send(world.headers(["authorization": "bearer " + again]), payload)
        #expect((often.status, often.body) == (429, Self.reason(.tooManyProviderTokenUpdates)))
    }

    // MARK: Apps as files

    @Test func readsAnApp() throws {
        let provider = try TestProvider()
        for pem in [try provider.key.pem(), try provider.key.publicKeyPEM()] {
            let json = #"{"keyID":"K","teamID":"T","key":"k.p8","topics":["a","b"],"environments":["development"]}"#
            let key = try ProviderKey(json: Array(json.utf8)) { name in
                #expect(name == "k.p8")
                return pem
            }
            #expect((key.keyID, key.teamID, key.bundleIDs, key.environments) == ("K", "T", ["a", "b"], [.sandbox]))
        }
        let both = #"{"keyID":"K","teamID":"T","key":"k","topics":["a"]}"#
        let key = try ProviderKey(json: Array(both.utf8)) { _ in try provider.key.pem() }
        #expect(key.environments == [.production, .sandbox])
    }

    @Test(arguments: [
        "", "[]", "{}", #"{"keyID":1,"teamID":"T","key":"k","topics":["a"]}"#, #"{"keyID":"K","teamID":"T","key":"k"}"#,
        #"{"keyID":"K","teamID":"T","key":"k","topics":[]}"#, #"{"keyID":"K","teamID":"T","key":"k","topics":[""]}"#,
        #"{"keyID":"K","teamID":"T","key":"k","topics":"a"}"#,
        #"{"keyID":"K","teamID":"T","key":"k","topics":["a"],"environments":[]}"#,
        #"{"keyID":"K","teamID":"T","key":"k","topics":["a"],"environments":["staging"]}"#,
        #"{"keyID":"K","teamID":"T","key":"k","topics":["a"],"topic":"b"}"#,
    ])
    func refusesAnApp(json: String) throws {
        #expect(throws: ProviderKey.Malformed.self) { try ProviderKey(json: Array(json.utf8)) { _ in [] } }
    }
}
