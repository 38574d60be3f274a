import EventLoop
import HTTP2
import Linux
import TLS
import TestCertificates
import Testing

@testable import APNsSimulator

/// Rules for a connection: its limit of streams, its team and its key.
@Suite(.timeLimit(.minutes(1))) struct ConnectionRuleTests {
    private static func reason(_ reason: Reason) -> String { #"{"reason":"\#(reason.rawValue)"}"# }

    // MARK: Streams

    @Test func streamLimitIsConfigurable() async throws {
        let world = try await World { configuration, _ in configuration.streams = 7 }
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        #expect(await client.streamsAllowed == 7)
    }

    @Test func rejectionReducesTheLimitToOneStream() async throws {
        let world = try await World()
        let client = try await world.client()
        _ = try await client.send(world.headers(), payload)
        #expect(await client.streamsAllowed == 1000)
        #expect(try await client.send(world.headers(["authorization": "bearer x"]), payload).status == 403)
        #expect(await client.streamsAllowed == 1)
        // Other refusals don't change the limit.
        #expect(try await client.send(world.headers(["apns-priority": "3"]), payload).status == 400)
        #expect(await client.streamsAllowed == 1)
        #expect(try await client.send(world.headers(), payload).status == 200)
        #expect(await client.streamsAllowed == 1000)
        // A planned rejection has the same effect.
        await world.simulator.setFaults(FaultPlan(next: [Fault(.expiredProviderToken)]))
        #expect(try await client.send(world.headers(), payload).status == 403)
        #expect(await client.streamsAllowed == 1)
    }

    @Test func faultFixesTheStreamLimit() async throws {
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

    @Test func exceedingTheLimitCausesGoAway() async throws {
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
        // This is a third open stream.
        try await client.sendBytes(TestClient.head(world.headers(), stream: 5))
        await client.untilClosed()
        #expect(await client.goAways.count == 1)
        #expect(await client.goAways.first?.contains("max concurrent streams exceeded") == true)
        for task in [first, second] { await #expect(throws: TestFailure.self) { try await task.value } }
    }

    // MARK: Teams and keys

    @Test func keysWorkOnlyForTheirTopics() async throws {
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
        // The right key with the wrong team, and the wrong key with the right team.
        for token in [
            try world.provider.token(iat: now, keyID: "KEY0000001", team: "TEAM000002"),
            try world.provider.token(iat: now, keyID: "KEY0000003", team: "TEAM000002"),
        ] {
            let answer = try await world.client().send(world.headers(["authorization": "bearer " + token]), payload)
            #expect(answer.body == Self.reason(.invalidProviderToken))
        }
    }

    @Test func connectionKeepsKeyAndTeam() async throws {
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
    func keyOfTheOtherEnvironmentIsRefused(isSandbox: Bool) async throws {
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

    @Test func oldAndFrequentTokensAreRefused() async throws {
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

    @Test func appsAreRead() throws {
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
    func invalidAppsAreRefused(json: String) throws {
        #expect(throws: ProviderKey.Malformed.self) { try ProviderKey(json: Array(json.utf8)) { _ in [] } }
    }
}

/// Client certificates instead of provider tokens.
@Suite(.timeLimit(.minutes(1))) struct CertificateTests {
    private static let sandbox = ClientCertificateFiles.sandbox
    private static let production = ClientCertificateFiles.production

    /// Sends one push with a certificate and without a provider token.
    private func answer(
        _ files: ClientCertificateFiles, isSandbox: Bool = true, trusted: [ClientCertificateFiles]? = nil,
        _ changes: [String: String] = [:], without: Set<String> = []
    ) async throws -> (status: Int, body: String, streams: Int) {
        let world = try await World(isSandbox: isSandbox) { configuration, _ in
            configuration.clientAuthorities = (trusted ?? [files]).flatMap(\.certificate)
        }
        let client = try await world.client(identity: try files.identity())
        let good = world.headers(changes)
        var headers = HTTP2Headers(capacity: 256)
        for index in 0..<good.count where good[index].name != "authorization" && !without.contains(good[index].name) {
            headers.append(good[index].name, good[index].value)
        }
        let answer = try await client.send(headers, payload)
        let streams = await client.streamsAllowed
        await world.simulator.stop()
        return (answer.status, answer.body, streams)
    }

    private static func body(_ reason: Reason) -> String { #"{"reason":"\#(reason.rawValue)"}"# }

    @Test func validCertificateReplacesTheToken() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.app"], marks: [Self.sandbox, Self.production])
        for isSandbox in [true, false] {
            #expect(try await answer(files, isSandbox: isSandbox) == (200, "", 1000))
            // The certificate determines the default topic.
            #expect(try await answer(files, isSandbox: isSandbox, without: ["apns-topic"]).status == 200)
        }
        let other = try await answer(files, ["apns-topic": "org.example.other"])
        #expect((other.status, other.body) == (400, Self.body(.topicDisallowed)))
    }

    @Test(arguments: ["voip", "liveactivity", "location"]) func typesThatNeedATokenAreRefused(type: String) async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.app"])
        let suffix = PushType(rawValue: type)!.topicSuffix
        let refused = try await answer(files, ["apns-push-type": type, "apns-topic": "org.example.app" + suffix])
        #expect((refused.status, refused.body) == (400, Self.body(.topicDisallowed)))
        let taken = try await answer(files, ["apns-push-type": "complication", "apns-topic": "org.example.app.complication"])
        #expect(taken.status == 200)
    }

    @Test func certificatesWithSeveralTopicsNeedTheHeader() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.one", "org.example.app"])
        #expect(try await answer(files).status == 200)
        #expect(try await answer(files, ["apns-topic": "org.example.one"]).status == 200)
        let missing = try await answer(files, without: ["apns-topic"])
        #expect((missing.status, missing.body) == (400, Self.body(.missingTopic)))
    }

    @Test(arguments: [true, false]) func certificateOfTheOtherEnvironmentIsRefused(isSandbox: Bool) async throws {
        let files = try ClientCertificateFiles(
            userIDs: ["org.example.app"], marks: [isSandbox ? Self.production : Self.sandbox])
        #expect(try await answer(files, isSandbox: isSandbox) == (403, Self.body(.badCertificateEnvironment), 1))
        #expect(try await answer(files, isSandbox: !isSandbox).status == 200)
    }

    @Test func untrustedAndNamelessCertificatesAreRefused() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.app"])
        let another = try ClientCertificateFiles(userIDs: ["org.example.app"])
        #expect(try await answer(files, trusted: [another]) == (403, Self.body(.badCertificate), 1))
        let nameless = try ClientCertificateFiles(userIDs: [])
        #expect(try await answer(nameless) == (403, Self.body(.badCertificate), 1))
    }

    @Test func certificatesAreOptional() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.app"])
        let world = try await World { configuration, _ in configuration.clientAuthorities = files.certificate }
        let client = try await world.client()
        let without = try await client.send(world.headers(["authorization": ""]), payload)
        #expect(without.body == Self.body(.missingProviderToken))
        #expect(try await client.send(world.headers(), payload).status == 200)
        await world.simulator.stop()
    }
}
