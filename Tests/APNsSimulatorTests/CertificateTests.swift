import HTTP2
import Linux
import TLS
import TestCertificates
import Testing

@testable import APNsSimulator

/// A client certificate in place of a provider token.
@Suite(.timeLimit(.minutes(1))) struct CertificateTests {
    private static let sandbox = ClientCertificateFiles.sandbox
    private static let production = ClientCertificateFiles.production

    /// Sends one push by `files`, without a provider token.
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

    @Test func aGoodOneNeedsNoTokenAndHasItsStreamsAtOnce() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.app"], marks: [Self.sandbox, Self.production])
        for isSandbox in [true, false] {
            #expect(try await answer(files, isSandbox: isSandbox) == (200, "", 1000))
            // Its topic is what it is for.
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

    @Test func severalTopicsMustBeNamed() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.one", "org.example.app"])
        #expect(try await answer(files).status == 200)
        #expect(try await answer(files, ["apns-topic": "org.example.one"]).status == 200)
        let missing = try await answer(files, without: ["apns-topic"])
        #expect((missing.status, missing.body) == (400, Self.body(.missingTopic)))
    }

    @Test(arguments: [true, false]) func oneForTheOtherEnvironmentIsRefused(isSandbox: Bool) async throws {
        let files = try ClientCertificateFiles(
            userIDs: ["org.example.app"], marks: [isSandbox ? Self.production : Self.sandbox])
        #expect(try await answer(files, isSandbox: isSandbox) == (403, Self.body(.badCertificateEnvironment), 1))
        #expect(try await answer(files, isSandbox: !isSandbox).status == 200)
    }

    @Test func aStrangersIsRefusedAndSoIsOneForNothing() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.app"])
        let another = try ClientCertificateFiles(userIDs: ["org.example.app"])
        #expect(try await answer(files, trusted: [another]) == (403, Self.body(.badCertificate), 1))
        let nameless = try ClientCertificateFiles(userIDs: [])
        #expect(try await answer(nameless) == (403, Self.body(.badCertificate), 1))
    }

    @Test func whoShowsNoneMayComeWithAToken() async throws {
        let files = try ClientCertificateFiles(userIDs: ["org.example.app"])
        let world = try await World { configuration, _ in configuration.clientAuthorities = files.certificate }
        let client = try await world.client()
        let without = try await client.send(world.headers(["authorization": ""]), payload)
        #expect(without.body == Self.body(.missingProviderToken))
        #expect(try await client.send(world.headers(), payload).status == 200)
        await world.simulator.stop()
    }
}
