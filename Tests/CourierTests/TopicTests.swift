import EventLoop
import Linux
import Synchronization
import Testing
import Vocabulary

@testable import Courier

/// Several apps on one connection, over real sockets: what one of them suffers is not the others'.
@Suite struct TopicTests {
    static func topic(_ request: ScriptedServer.Request) -> String { request.fields["apns-topic"] ?? "" }

    @Test func topicsTakeTurns() async throws {
        let script: ScriptedServer.Script = { _ in [.after(5, [.answer(200)])] }
        try await Stage.play(script: script) { stage in
            async let many = stage.send((1...40).map { Push.sample($0, topic: "many") })
            async let few = stage.send((41...45).map { Push.sample($0, topic: "few") })
            #expect(await (many + few).allSatisfy { $0 == .delivered })
            let requests = await stage.server.requests
            let last = requests.lastIndex { Self.topic($0) == "few" }
            #expect(last! < 20, "\(requests.map(Self.topic))")
        }
    }

    /// All streams are its own at first, and each new connection begins with one.
    @Test func anUnansweredAppLeavesStreamsToOthers() async throws {
        let script: ScriptedServer.Script = { Self.topic($0) == "hangs" ? [.settings(20)] : [.settings(20), .answer(200)] }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample(topic: "good")) == .delivered)
            let start = stage.loop.now
            async let lost = stage.send((1...200).map { Push.sample($0, deadlineInMs: 1200, topic: "hangs") })
            try await stage.loop.sleep(20)
            var waits: [UInt64] = []
            for number in 1...25 {
                let asked = stage.loop.now
                #expect(await stage.courier.send(Push.sample(1000 + number, topic: "good")) == .delivered)
                waits.append(stage.loop.now - asked)
                try await stage.loop.sleep(20)
            }
            // The first pushes wait until streams of the other app are given up (after 150 ms), and for a handshake. The others don't wait.
            #expect(waits.allSatisfy { $0 < 600 } && waits.count { $0 >= 100 } <= 3, "\(waits)")
            let tries = await stage.server.requests.count { Self.topic($0) == "hangs" }
            #expect(tries <= 20 + 1 + Int((stage.loop.now - start) / 150), "\(tries)")
            // The deadline of some may come between two connections.
            let reasons: Set<PushReason> = [.unknown, .late, .unreachable]
            for outcome in await lost {
                guard case .failed(0, let reason, .keep) = outcome else { return #expect(Bool(false), "\(outcome)") }
                #expect(reasons.contains(reason))
            }
        }
    }

    @Test func anAppWithResponsesAgainUsesAllStreams() async throws {
        let isMended = Mutex(false)
        let script: ScriptedServer.Script = {
            Self.topic($0) == "good" || isMended.withLock { $0 } ? [.settings(20), .after(5, [.answer(200)])] : [.settings(20)]
        }
        try await Stage.play(script: script) { stage in
            #expect(await stage.courier.send(Push.sample(topic: "good")) == .delivered)
            async let all = stage.send((1...200).map { Push.sample($0, topic: "hangs") })
            try await stage.loop.sleep(400)
            isMended.withLock { $0 = true }
            let before = await stage.server.requests.count
            #expect(await all.allSatisfy { $0 == .delivered })
            #expect(await stage.server.requests.dropFirst(before).contains { $0.openStreams > 10 })
        }
    }
}
