import Ledger
import Linux
import Sealing
import Shares
import Sodium
import Synchronization
import Testing
import Vocabulary

@testable import Broker
@testable import EventLoop

/// Two or three nodes on one loop with a clock of its own, joined by a wire that may lose messages.
@Suite struct NeighborsTests {
    private static let room = Digest.sha256([1, 2, 3].span)
    private static let one = RoomSide(room: room, slot: 1)
    private static let two = RoomSide(room: room, slot: 2)

    /// Carries each message to all nodes.
    private final class Wire: Sendable {
        private let nodes = Mutex<[(neighbors: Neighbors, receivers: Neighbors.Receivers)]>([])
        private let isCut = Mutex(false)
        let sent = Mutex<[String]>([])

        func add(_ node: Neighbors, _ receivers: Neighbors.Receivers) { nodes.withLock { $0.append((node, receivers)) } }
        func remove(_ node: Neighbors) { nodes.withLock { $0.removeAll { $0.neighbors === node } } }
        func cut(_ isCut: Bool) { self.isCut.withLock { $0 = isCut } }

        func send(_ text: String) {
            sent.withLock { $0.append(text) }
            if isCut.withLock(\.self) { return }
            for node in nodes.withLock(\.self) { node.neighbors.receive(text, for: node.receivers) }
        }
    }

    /// The sockets of a node. All of them answer pings, unless they are silent.
    private final class Edge: RoomSockets {
        let presence = Mutex<Presence?>(nil)
        let silent = Mutex<Set<UInt64>>([])
        let heard = Mutex<[UInt64: [RoomEvent]]>([:])

        func send(_ socket: UInt64, _ event: RoomEvent) async { heard.withLock { $0[socket, default: []].append(event) } }
        func ping(_ socket: UInt64, _ number: UInt64) async {
            if silent.withLock({ !$0.contains(socket) }) { await presence.withLock(\.self)?.pong(socket: socket, number: number) }
        }
        func close(_ socket: UInt64) async {}
    }

    private struct Node {
        let neighbors: Neighbors
        let presence: Presence
        let edge: Edge
        let task: Task<Void, Never>
        let id: RoomID

        func join(_ socket: UInt64, _ side: RoomSide) async {
            await presence.join(socket, at: side, with: knocker, endsInMs: 3_600_000)
        }
        var knocker: Knocker { Knocker(room: id, rooms: nil) }

        func receive(_ text: String) { neighbors.receive(text, for: Neighbors.Receivers(presence)) }
        func heard(_ socket: UInt64) -> [RoomEvent] { edge.heard.withLock { $0[socket] ?? [] } }
    }

    /// The nodes of one play.
    private actor Stage: LoopActor {
        nonisolated let loop: EventLoop
        nonisolated let machine: MachineClock
        nonisolated let wire = Wire()
        nonisolated let keys: KeyRing

        init(_ loop: EventLoop, _ machine: MachineClock) throws {
            (self.loop, self.machine) = (loop, machine)
            keys = try KeyRing.make(nowMs: machine.wall, longestLifeSeconds: 604_800)
        }

        func node() async throws -> Node {
            let (machine, wire) = (machine, wire)
            let time = BrokerTime(persisted: 0, wall: { machine.wall }, boot: { machine.boot })
            let neighbors = Neighbors(loop: loop, keys: keys, time: time, shares: Shares(.standard)) { wire.send($0) }
            let edge = Edge()
            let presence = Presence(
                loop: loop, timing: PresenceState.Timing(graceMs: 5_000, reportMs: 45_000, probeMs: 2_000), sockets: edge,
                neighbors: neighbors)
            edge.presence.withLock { $0 = presence }
            let receivers = Neighbors.Receivers(presence)
            wire.add(neighbors, receivers)
            let loop = loop
            let node = Node(
                neighbors: neighbors, presence: presence, edge: edge,
                task: Task(executorPreference: loop) { await neighbors.run(receivers) },
                id: try RoomID.random())
            await pass(100)
            return node
        }

        /// Like kill -9.
        func kill(_ node: Node) async {
            wire.remove(node.neighbors)
            node.task.cancel()
            await pass(0)
        }

        func pass(_ ms: UInt64) async {
            let end = machine.monotonic + ms
            while true {
                await settle()
                guard let next = loop.nextDeadline, next <= end else { break }
                machine.pass(max(next, machine.monotonic) - machine.monotonic)
            }
            machine.pass(end - machine.monotonic)
            await settle()
        }

        private func settle() async {
            await withCheckedContinuation { continuation in look { continuation.resume() } }
        }

        private func look(_ whenQuiet: @escaping @Sendable () -> Void) {
            loop.atEndOfTurn { if self.loop.isQuiet { whenQuiet() } else { self.assumeIsolated { $0.look(whenQuiet) } } }
        }
    }

    private func play(_ story: @escaping @Sendable (Stage) async throws -> Void) async throws {
        try await MachineClock.play("neighbors") { loop, machine in try await story(try Stage(loop, machine)) }
    }

    // Promise: presence-over-nodes
    @Test func aSideAtAnotherNodeIsPresentAndProbedThere() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            #expect(first.neighbors.count == 1 && second.neighbors.count == 1)
            await first.join(1, Self.one)
            await stage.pass(10)
            #expect(await second.presence.check(Self.one, isAwaited: true) == .present, "it has just arrived")
            await second.join(2, Self.two)
            await stage.pass(60_000)
            #expect(first.heard(1) == [.peerJoined])
            #expect(await second.presence.check(Self.one, isAwaited: true) == .probing)
            await stage.pass(10)
            #expect(await second.presence.check(Self.one, isAwaited: true) == .present, "its phone has answered")
            await stage.pass(2_100)
            // Now the phone is suspended.
            _ = first.edge.silent.withLock { $0.insert(1) }
            await stage.pass(60_000)
            #expect(await second.presence.check(Self.one, isAwaited: true) == .probing)
            await stage.pass(1_900)
            #expect(await second.presence.isPresent(Self.one))
            await stage.pass(200)
            #expect(await !second.presence.isPresent(Self.one))
            #expect(await !first.presence.isPresent(Self.one))
            #expect(second.heard(2) == [.peerLeft(nil)])
            // It wakes up, and answers the probe at last.
            first.edge.silent.withLock { $0 = [] }
            await first.presence.pong(socket: 1, number: 1_000)
            await stage.pass(10)
            #expect(await second.presence.isPresent(Self.one))
            #expect(second.heard(2) == [.peerLeft(nil), .peerJoined])
        }
    }

    /// The phone is suspended at one node, and its peer arrives at another one, at any moment after the last sign of life.
    @Test func aSuspendedPhoneIsFoundInTimeFromAnotherNode() async throws {
        for offset in stride(from: 0, through: 5_000 as UInt64, by: 500) {
            for isInDoubt in [false, true] {
                try await play { stage in
                    let (first, second) = (try await stage.node(), try await stage.node())
                    await first.join(1, Self.one)
                    await stage.pass(60_000)
                    // A push makes its node probe the phone. It answers, or the probe is under way when the peer arrives.
                    if isInDoubt { _ = first.edge.silent.withLock { $0.insert(1) } }
                    #expect(await first.presence.check(Self.one, isAwaited: false) == .probing)
                    await stage.pass(0)
                    _ = first.edge.silent.withLock { $0.insert(1) }
                    await stage.pass(offset)
                    await second.join(2, Self.two)
                    let finding = await second.presence.check(Self.one, isAwaited: true)
                    await stage.pass(5_000)
                    let heard = second.heard(2)
                    #expect(heard == [.peerLeft(nil)] || finding == .absent, "\(offset) ms, in doubt: \(isInDoubt)")
                }
            }
        }
    }

    /// Nothing is heard while the peer arrives, so the phone is believed. It is probed when messages arrive again.
    @Test func aPhoneThatWasBelievedIsProbedLater() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await stage.pass(10_000)
            stage.wire.cut(true)
            _ = first.edge.silent.withLock { $0.insert(1) }
            await stage.pass(7_000)
            await second.join(2, Self.two)
            #expect(await second.presence.check(Self.one, isAwaited: true) == .probing)
            await stage.pass(60_000)
            #expect(await second.presence.isPresent(Self.one))
            #expect(await second.presence.counts.timers == 1)
            stage.wire.cut(false)
            // The next pulse, the next check and its probe.
            await stage.pass(3_000 + 2_000 + 2_100)
            #expect(second.heard(2) == [.peerLeft(nil)])
        }
    }

    /// The message that a side arrived was lost. A repetition is no sign of life.
    @Test func hearsayIsCheckedByWhoeverWaits() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await second.join(2, Self.two)
            await stage.pass(10)
            stage.wire.cut(true)
            await first.join(1, Self.one)
            _ = first.edge.silent.withLock { $0.insert(1) }
            await stage.pass(10)
            stage.wire.cut(false)
            await stage.pass(8_000)
            #expect(second.heard(2) == [.peerJoined, .peerLeft(nil)])
        }
    }

    /// The answer to a probe was lost, so the side counted as absent. Its node's next repetition brings it back.
    @Test func aSideThatCountedAsAbsentIsProbedAgain() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await stage.pass(10_000)
            await second.join(2, Self.two)
            stage.wire.cut(true)
            #expect(await second.presence.check(Self.one, isAwaited: true) == .probing)
            await stage.pass(2_500)
            #expect(await !second.presence.isPresent(Self.one))
            stage.wire.cut(false)
            await stage.pass(10_000)
            #expect(await second.presence.isPresent(Self.one))
            #expect(second.heard(2) == [.peerLeft(nil), .peerJoined])
            // A suspended phone stays absent.
            _ = first.edge.silent.withLock { $0.insert(1) }
            #expect(await second.presence.check(Self.one, isAwaited: true) == .probing)
            await stage.pass(60_000)
            #expect(await !second.presence.isPresent(Self.one))
            #expect(await !first.presence.isPresent(Self.one))
        }
    }

    /// A side left a stale socket at one node and came to the other one, where its peer is. That node lost its socket, and asks. The first one must not answer
    /// with what it was told of that socket: it does not know the peer yet, so it would not look again.
    @Test func aNodeDoesNotAnswerWithWhatItWasTold() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            _ = first.edge.silent.withLock { $0.insert(1) }
            await stage.pass(5_000)
            stage.wire.cut(true)
            await second.join(2, Self.two)
            await stage.pass(10)
            stage.wire.cut(false)
            await second.join(3, Self.one)
            await stage.pass(100)
            stage.wire.cut(true)
            await second.presence.leave(socket: 3, isDeliberate: false)
            await stage.pass(100)
            stage.wire.cut(false)
            // The probe is repeated, and the next repetition of the peer is lost.
            await stage.pass(450)
            stage.wire.cut(true)
            await stage.pass(1_600)
            stage.wire.cut(false)
            await stage.pass(30_000)
            #expect(await !second.presence.isPresent(Self.one))
            #expect(second.heard(2).last == .peerLeft(nil))
        }
    }

    /// A node missed the report that a side leaves, and repeats its socket. The node that has the report does not ask that socket.
    @Test func aRepetitionDoesNotUndoALeave() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await second.join(2, Self.two)
            await stage.pass(10_000)
            stage.wire.cut(true)
            await second.presence.reportLeaving(Self.one)
            await stage.pass(100)
            stage.wire.cut(false)
            await stage.pass(30_000)
            #expect(await !second.presence.isPresent(Self.one))
            #expect(second.heard(2) == [.peerJoined, .peerLeft(nil)])
        }
    }

    /// A side reports to one node. Its peer's connection, at another node, may break.
    @Test func theRoomIDIsKeptForAPeerAtAnotherNode() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.presence.report(Self.two, with: first.knocker)
            await stage.pass(1_000)
            await second.join(1, Self.one)
            await stage.pass(1_000)
            #expect(await first.presence.counts.knockers == 1)
            await second.presence.leave(socket: 1, isDeliberate: false)
            await stage.pass(60_000)
            #expect(await first.presence.counts == Presence.Counts())
        }
    }

    @Test func departuresReachAllNodes() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await second.join(2, Self.two)
            await stage.pass(1_000)
            await first.presence.leave(socket: 1, isDeliberate: true)
            await stage.pass(10)
            #expect(second.heard(2) == [.peerJoined, .peerLeft(nil)])
            await stage.pass(5_000)
            #expect(await !second.presence.isPresent(Self.one))
            await first.join(3, Self.one)
            await stage.pass(10)
            #expect(second.heard(2) == [.peerJoined, .peerLeft(nil), .peerJoined])
            // A connection that breaks counts for the grace.
            await first.presence.leave(socket: 3, isDeliberate: false)
            await stage.pass(4_900)
            #expect(await second.presence.isPresent(Self.one))
            await stage.pass(200)
            #expect(await !second.presence.isPresent(Self.one))
            // A report to one node, and its end to another.
            await first.presence.report(Self.one, with: first.knocker)
            await stage.pass(10)
            #expect(await second.presence.isPresent(Self.one))
            await second.presence.reportLeaving(Self.one)
            await stage.pass(5_100)
            #expect(await !first.presence.isPresent(Self.one))
        }
    }

    /// The report is overtaken by the arrival that follows it at another node.
    @Test func aLateReportOfALeaveEndsNoNewerSocket() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.presence.report(Self.one, with: first.knocker)
            await second.join(2, Self.two)
            await stage.pass(1_000)
            await first.presence.reportLeaving(Self.one)
            await second.join(1, Self.one)
            await stage.pass(20_000)
            for node in [first, second] { #expect(await node.presence.isPresent(Self.one)) }
            // A socket that answers nothing is that of an app that has left.
            second.edge.silent.withLock { _ = $0.insert(1) }
            await first.presence.reportLeaving(Self.one)
            await stage.pass(5_100)
            for node in [first, second] { #expect(await !node.presence.isPresent(Self.one)) }
        }
    }

    /// One socket at each node: whoever has one left is present everywhere.
    @Test func aSideWithSocketsAtTwoNodesStays() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await second.join(2, Self.one)
            await stage.pass(1_000)
            await first.presence.leave(socket: 1, isDeliberate: false)
            await stage.pass(20_000)
            #expect(await first.presence.isPresent(Self.one))
            #expect(await second.presence.isPresent(Self.one))
            await second.presence.leave(socket: 2, isDeliberate: false)
            await stage.pass(5_100)
            #expect(await !first.presence.isPresent(Self.one))
            #expect(await !second.presence.isPresent(Self.one))
        }
    }

    @Test func theSocketsOfADeadNodeEndWithIt() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await second.join(2, Self.two)
            await stage.pass(1_000)
            await stage.kill(first)
            await stage.pass(9_000)
            #expect(await second.presence.isPresent(Self.one))
            await stage.pass(12_000)
            #expect(await !second.presence.isPresent(Self.one))
            #expect(second.neighbors.count == 0)
        }
    }

    @Test func aLateNodeLearnsWhoIsPresent() async throws {
        try await play { stage in
            let first = try await stage.node()
            await first.join(1, Self.one)
            await stage.pass(60_000)
            let second = try await stage.node()
            #expect(await second.presence.isPresent(Self.one))
            // Hearsay proves nothing.
            #expect(await second.presence.check(Self.one, isAwaited: true) == .probing)
        }
    }

    // Promise: lost-messages-ring-nobody
    @Test func lostMessagesMakeNobodyAbsent() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await second.join(2, Self.two)
            await stage.pass(10_000)
            stage.wire.cut(true)
            await stage.pass(7_000)
            // No answer could arrive, so the side is believed.
            _ = await second.presence.check(Self.one, isAwaited: true)
            await stage.pass(120_000)
            #expect(await second.presence.isPresent(Self.one))
            stage.wire.cut(false)
            await stage.pass(10_000)
            #expect(await second.presence.isPresent(Self.one))
            #expect(second.heard(2) == [.peerJoined])
        }
    }

    @Test func aLostDepartureIsNoticed() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await second.join(2, Self.two)
            await stage.pass(10_000)
            stage.wire.cut(true)
            await first.presence.leave(socket: 1, isDeliberate: false)
            await stage.pass(10)
            stage.wire.cut(false)
            await stage.pass(20_000)
            #expect(await !second.presence.isPresent(Self.one))
        }
    }

    @Test func aRoomEndsAtAllNodes() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await second.join(2, Self.two)
            await stage.pass(1_000)
            await first.presence.endEverywhere(Self.room)
            await stage.pass(10)
            #expect(first.heard(1).last == .roomClosed && second.heard(2).last == .roomClosed)
            await stage.pass(10_000)
            #expect(await !second.presence.isPresent(Self.one))
            #expect(await !first.presence.isPresent(Self.two))
        }
    }

    // Promise: notify-reveals-nothing
    @Test func messagesAreSealedAndCantBeMadeUp() async throws {
        try await play { stage in
            let (first, second) = (try await stage.node(), try await stage.node())
            await first.join(1, Self.one)
            await stage.pass(10)
            let sent = stage.wire.sent.withLock(\.self)
            for text in sent {
                var bytes = [UInt8](repeating: 0, count: text.utf8.count)
                var span = bytes.mutableSpan
                let count = try #require(Base64.url.decode(Array(text.utf8).span, into: &span))
                #expect((count - 12 - 40).isMultiple(of: 256), "the length tells little")
                #expect(!Self.contains(bytes[..<count], Self.room.bytes))
            }
            // Nobody without the keys can make one up, and an old one is no longer heard.
            let last = try #require(sent.last)
            var forged = Array(last.utf8)
            forged[40] ^= 1
            second.receive(String(decoding: forged, as: UTF8.self))
            second.receive("")
            second.receive("AAAA")
            await first.presence.leave(socket: 1, isDeliberate: true)
            await stage.kill(first)
            // Nor can anybody repeat one.
            await stage.pass(20_000)
            for text in sent { second.receive(text) }
            await stage.pass(10)
            #expect(await !second.presence.isPresent(Self.one))
            #expect(second.neighbors.count == 0)
            await stage.pass(200_000)
            second.receive(last)
            await stage.pass(10)
            #expect(await !second.presence.isPresent(Self.one))
        }
    }

    private static func contains(_ bytes: ArraySlice<UInt8>, _ part: [UInt8]) -> Bool {
        bytes.indices.contains { bytes[$0...].starts(with: part) }
    }

    @Test func everyMessageIsReadAsItWasWritten() {
        let (request, session): (RequestID, [UInt8]) = (.random(), Array("session".utf8))
        let user = CompanionReceiver(name: Array("ann".utf8), isBackEnd: false)
        let news: [CompanionMessage] = [
            .approvalResponse(request: request, session: session, approved: true),
            .approvalTimeout(request: request, session: session), .approvalWithdrawn(request: request, session: session),
            .approvalRequest(request: request, session: session, expires: 7),
            .progress(SessionProgress(elapsedSeconds: 3, completed: nil, total: -1), session: session),
            .state("working", before: nil, session: session), .state("idle", before: "working", session: []),
        ]
        let messages: [NodeMessage] =
            [
                .hello, .pulse, .here(Self.one, isNew: true), .gone(Self.two, .broken), .gone(Self.one, .unanswered),
                .leaving(Self.one), .probe(Self.two, number: .max), .alive(Self.one, number: 3, node: 4),
                .accepted(room: Self.room), .closed(room: Self.room), .revoked(EntryID(high: 1, low: 2)),
                .renewed(EntryID(high: 3, low: 4)),
            ] + news.map { .news(user, $0) }
        for message in messages {
            let bytes = message.encoded
            var rest = bytes[...]
            #expect(NodeMessage(&rest) == message && rest.isEmpty)
            for count in bytes.indices {
                var rest = bytes[..<count]
                #expect(NodeMessage(&rest) == nil, "\(message) in \(count) bytes")
            }
        }
    }
}
