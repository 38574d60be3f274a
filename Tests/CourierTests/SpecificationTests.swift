import APNsSimulator
import Linux
import Sealing
import Testing
import Vocabulary

@testable import Courier

// Each row of Apple's rules (docs/delivery.md says what the courier makes of them), over real sockets against the simulator.

/// Section "Request headers": what is sent, as the simulator saw it, and that one fault in it is refused.
@Suite(.timeLimit(.minutes(1))) struct RequestHeaderRows {
    @Test func authorizationAndTopicAndTypeAndIDAlwaysGoAlong() async throws {
        try await SimulatedAPNs.play { world in
            #expect(await world.send() == .delivered)
            let push = try #require(await world.accepted.first)
            // Without a valid one it would have been refused; the simulator keeps none.
            #expect(push.headers["authorization"] == nil)
            #expect(push.headers["apns-topic"] == "example.app")
            #expect(push.headers["apns-push-type"] == "alert")
            #expect(push.headers["apns-id"] == "00000000-0000-4000-8000-000000000001")
            #expect(push.headers["apns-priority"] == "10")
            #expect(push.headers["apns-collapse-id"] == "handle")
            #expect(push.token == Push.sampleHex(1))
        }
    }

    @Test(arguments: [UInt64?.none, 0, 1_900_000_000]) func expirationZeroAndNoneDiffer(expiration: UInt64?) async throws {
        try await SimulatedAPNs.play { world in
            #expect(await world.send { $0.expirationS = expiration } == .delivered)
            #expect(await world.accepted.first?.headers["apns-expiration"] == expiration.map { "\($0)" })
        }
    }

    @Test(arguments: [UInt8(10), 5, 1]) func everyPriority(priority: UInt8) async throws {
        try await SimulatedAPNs.play { world in
            #expect(await world.send { $0.priority = priority } == .delivered)
            #expect(await world.accepted.first?.headers["apns-priority"] == "\(priority)")
        }
    }

    /// 64 bytes, not characters: 32 letters of two bytes are the most.
    @Test func collapseIDsAreCountedInBytes() async throws {
        try await SimulatedAPNs.play { world in
            let most = String(repeating: "é", count: 32)
            // Both outside #expect: a closure within and one without are taken for each other (Swift 6.3.1).
            let fits = await world.send { $0.collapseID = most }
            #expect(fits == .delivered)
            #expect(await world.accepted.first?.headers["apns-collapse-id"] == most)
            let over = await world.send(2) { $0.collapseID = most + "e" }
            #expect(over == .failed(status: 0, reason: .badCollapseID, verdict: .keep))
            #expect(await world.refusals == 0)
        }
    }

    // Promise: same-apns-id
    @Test func theIDIsTheSameOnEveryRetry() async throws {
        try await SimulatedAPNs.play { world in
            let lost = Fault.with { ($0.reset, $0.accepted) = (true, true) }
            let dropped = Fault.with { ($0.drop, $0.accepted) = (true, true) }
            let half = Fault.with { $0.form.half = true }
            await world.plan(lost, Fault(.internalServerError), dropped, Fault(.serviceUnavailable), half)
            #expect(await world.send() == .delivered)
            let ids = await world.accepted.map { $0.headers["apns-id"] }
            #expect(ids.count == 4)
            #expect(Set(ids) == ["00000000-0000-4000-8000-000000000001"])
        }
    }
}

/// Section "Push types": topic, payload and priority of each.
@Suite(.timeLimit(.minutes(1))) struct PushTypeRows {
    static let rows: [(PushType, String, UInt8)] = [
        (.alert, "", 10), (.alert, "", 5), (.background, "", 5), (.voip, ".voip", 10),
        (.liveactivity, ".push-type.liveactivity", 5), (.liveactivity, ".push-type.liveactivity", 10),
    ]

    static func payload(_ kind: PushType, _ size: Int? = nil) -> [UInt8] {
        let aps =
            switch kind {
            case .background: #""content-available":1"#
            default: #""alert":"x""#
            }
        let frame = #"{"aps":{\#(aps)},"x":""}"#
        let filler = String(repeating: "y", count: max(0, (size ?? 0) - frame.utf8.count))
        return Array((frame.dropLast(2) + filler + "\"}").utf8)
    }

    @Test func everyTypeIsAcceptedUpToItsLimitAndNotSentAboveIt() async throws {
        #expect(Set(Self.rows.map(\.0)) == Set(PushType.allCases))
        try await SimulatedAPNs.play { world in
            for (number, (kind, suffix, priority)) in Self.rows.enumerated() {
                let limit = kind == .voip ? 5120 : 4096
                for (size, fits) in [(nil, true), (limit, true), (limit + 1, false)] {
                    let outcome = await world.send(number + 1) { push in
                        (push.type, push.priority) = (kind, priority)
                        push.payload = Self.payload(kind, size)
                    }
                    #expect(
                        outcome == (fits ? .delivered : .failed(status: 0, reason: .payloadTooLarge, verdict: .keep)),
                        "\(kind) \(size ?? 0)")
                }
                let topics = Set(
                    await world.accepted.filter { $0.headers["apns-push-type"] == kind.rawValue }.map { $0.headers["apns-topic"] }
                )
                #expect(topics == ["example.app" + suffix], "\(kind)")
            }
            #expect(await world.accepted.count == 2 * Self.rows.count)
            // What is too large never left.
            #expect(await world.refusals == 0)
            #expect(await world.connections == 1)
        }
    }

    /// Apple's limit, had it left.
    @Test func aMismatchOfTypeAndPayloadIsNotRetried() async throws {
        try await SimulatedAPNs.play { world in
            let outcome = await world.send { ($0.type, $0.priority) = (.background, 5) }
            #expect(outcome == .failed(status: 400, reason: .invalidPushType, verdict: .keep))
            let priority = await world.send { ($0.type, $0.priority) = (.voip, 5) }
            #expect(priority == .failed(status: 400, reason: .badPriority, verdict: .keep))
            #expect(await world.refusals == 2)
        }
    }
}

/// Section "Answers": each status and reason, planned, and what the courier does about it.
@Suite(.timeLimit(.minutes(2))) struct AnswerRows {
    enum Follows: Sendable {
        /// No further attempt.
        case end(Verdict)
        /// Delivered by a further attempt, on so many connections.
        case again(connections: Int)
    }

    static let rows: [(Reason, Follows)] = [
        (.badDeviceToken, .end(.purge(ifSealedBefore: nil))), (.deviceTokenNotForTopic, .end(.purge(ifSealedBefore: nil))),
        (.badTopic, .end(.configuration)), (.missingTopic, .end(.configuration)), (.topicDisallowed, .end(.configuration)),
        (.badCertificate, .end(.configuration)), (.badCertificateEnvironment, .end(.configuration)),
        (.missingProviderToken, .end(.configuration)),
        (.forbidden, .end(.configuration)), (.badEnvironmentKeyID, .end(.configuration)),
        (.badEnvironmentKey, .end(.configuration)), (.badCollapseID, .end(.keep)), (.badExpirationDate, .end(.keep)),
        (.badMessageID, .end(.keep)), (.badPriority, .end(.keep)), (.duplicateHeaders, .end(.keep)),
        (.invalidPushType, .end(.keep)), (.missingDeviceToken, .end(.keep)), (.payloadEmpty, .end(.keep)),
        (.badPath, .end(.keep)), (.methodNotAllowed, .end(.keep)), (.payloadTooLarge, .end(.keep)),
        (.idleTimeout, .again(connections: 2)), (.unrelatedKeyID, .again(connections: 2)),
        (.tooManyProviderTokenUpdates, .again(connections: 2)), (.shutdown, .again(connections: 2)),
        (.tooManyRequests, .again(connections: 1)), (.internalServerError, .again(connections: 1)),
        (.serviceUnavailable, .again(connections: 1)),
    ]
    /// ReactionTests and SkewedClockTests show these.
    static let apart: Set<Reason> = [.unregistered, .expiredToken, .expiredProviderToken, .invalidProviderToken]

    @Test func everyReasonHasARow() {
        #expect(Set(Self.rows.map(\.0)).union(Self.apart) == Set(Reason.allCases))
    }

    @Test(arguments: rows) func reaction(reason: Reason, follows: Follows) async throws {
        try await SimulatedAPNs.play { world in
            if case .end(.purge) = follows {
                // Who was never let in is no judge of tokens.
                #expect(await world.send(3) == .delivered)
            }
            let before = await world.accepted.count
            await world.plan(Fault(reason))
            let outcome = await world.send()
            switch follows {
            case .end(let verdict):
                let name = try #require(PushReason(rawValue: reason.rawValue))
                #expect(outcome == .failed(status: reason.status, reason: name, verdict: verdict))
                #expect(await world.refusals == 1)
                #expect(await world.accepted.count == before)
                #expect(world.alarms.all.count == (verdict == .configuration ? 1 : 0))
            case .again(let connections):
                #expect(outcome == .delivered)
                #expect(await world.connections == connections)
                #expect(await world.accepted.count == 1)
                #expect(world.alarms.all.isEmpty)
            }
            // The next one goes through, whatever came before.
            #expect(await world.send(2) == .delivered)
            #expect(world.issued.all.count == 1)
        }
    }

    @Test func a200IsDelivered() async throws {
        for isSandbox in [true, false] {
            let setting = try SimulatedAPNs.setting { $0.simulator.isSandbox = isSandbox }
            try await SimulatedAPNs.play(setting) { world in
                #expect(await world.send { $0.environment = isSandbox ? .sandbox : .production } == .delivered)
            }
        }
    }

    @Test func theUniqueIDIsReadOnlyOnRequest() async throws {
        for isSandbox in [true, false] {
            let setting = try SimulatedAPNs.setting { $0.simulator.isSandbox = isSandbox }
            try await SimulatedAPNs.play(setting) { world in
                var push = Push.sample()
                push.environment = isSandbox ? .sandbox : .production
                let (outcome, uniqueID) = await world.courier.sendTraced(push)
                #expect(outcome == .delivered)
                #expect(uniqueID?.utf8.count == (isSandbox ? 36 : nil))
                #expect(uniqueID != push.apnsID)
            }
        }
    }

    // MARK: Bodies

    @Test func aBodyComesInAnyShape() async throws {
        try await SimulatedAPNs.play { world in
            let shape = Fault.with {
                ($0.form.interim, $0.form.pieces, $0.form.trailers, $0.form.continuation) = (100, 1, true, 20)
            }
            var refused = shape
            refused.reason = "BadTopic"
            await world.plan(refused, shape)
            #expect(await world.send() == .failed(status: 400, reason: .badTopic, verdict: .configuration))
            #expect(await world.send(2) == .delivered)
            #expect(await world.connections == 1)
            #expect(await world.accepted.count == 1)
        }
    }

    /// Such a stream is broken (RFC 9113, 8.1.1); what was answered is unknown, so it is asked again under the same id.
    @Test(arguments: [1, 5000]) func aBodyOfAnotherLengthIsNoAnswer(announced: Int) async throws {
        try await SimulatedAPNs.play { world in
            var fault = Fault(.badDeviceToken)
            fault.form.announced = announced
            await world.plan(fault)
            #expect(await world.send() == .delivered)
        }
    }

    @Test func anAnswerBeforeTheRequestsEndIsAnAnswer() async throws {
        try await SimulatedAPNs.play { world in
            var fault = Fault(.badCollapseID)
            fault.at = .headers
            await world.plan(fault)
            #expect(await world.send() == .failed(status: 400, reason: .badCollapseID, verdict: .keep))
            #expect(await world.send(2) == .delivered)
            #expect(await world.connections == 1)
        }
    }
}
