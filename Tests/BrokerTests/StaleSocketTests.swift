import Testing
import Vocabulary

@testable import Broker

/// Nobody who waits is left waiting because of a stale socket.
@Suite struct StaleSocketTests {
    private static let room = Digest.sha256([1, 2, 3].span)
    /// The side that falls silent.
    private static let silent = RoomSide(room: room, slot: 1)
    /// The side that waits.
    private static let waiting = RoomSide(room: room, slot: 2)

    /// Two sides with living and suspended sockets. Living ones answer each ping in time.
    private struct Story {
        var stage = PresenceStage()
        let chance: Chance
        var sockets: [RoomSide: [UInt64]] = [:]
        var living: Set<UInt64> = []
        /// Sockets that no probe has found silent.
        var counting: Set<UInt64> = []
        var reportedUntil: UInt64 = 0
        var pongs: [(at: UInt64, socket: UInt64, number: UInt64)] = []
        /// When each side was last pinged.
        var pingedAt: [RoomSide: UInt64] = [:]
        /// When the side was knocked at, or a push to it was allowed to leave.
        var knocks: [UInt64] = []
        /// When the last knock at each side was accepted.
        var acceptedAt: [RoomSide: UInt64] = [:]
        /// The side has left deliberately since its peer began to wait.
        var hasLeft = false
        /// A push to the side waits for its probe.
        var isPushHeld = false
        /// What the rules forbid.
        var faults: [String] = []
        private var last: UInt64 = 0

        init(seed: UInt64) { chance = Chance(seed: seed) }

        mutating func join(_ side: RoomSide, isLiving: Bool) {
            last += 1
            sockets[side, default: []].append(last)
            counting.insert(last)
            if isLiving { living.insert(last) }
            stage.join(last, side)
            arrived(side)
        }

        mutating func report(_ side: RoomSide) {
            if side == StaleSocketTests.silent { reportedUntil = stage.now + 45_000 }
            stage.report(side)
            arrived(side)
        }

        /// Like `Rooms`: an arrival checks the peer.
        private mutating func arrived(_ side: RoomSide) {
            carryOut()
            if stage.check(side.peer) == .absent { knock(side.peer) }
            carryOut()
        }

        mutating func end(_ side: RoomSide, isDeliberate: Bool) {
            guard let open = sockets[side], !open.isEmpty else { return }
            end(open[Int(chance.upTo(UInt64(open.count)))], of: side, isDeliberate: isDeliberate)
        }

        mutating func end(_ socket: UInt64, of side: RoomSide, isDeliberate: Bool) {
            sockets[side]?.removeAll { $0 == socket }
            living.remove(socket)
            stage.end(socket, isDeliberate)
            carryOut()
        }

        mutating func leave(_ side: RoomSide) {
            stage.on { $0.reportLeaving(side, now: $1) }
            carryOut()
        }

        /// A push to the side is about to leave.
        mutating func push() {
            switch stage.check(StaleSocketTests.silent, isAwaited: false) {
            case .absent: knocks.append(stage.now)
            case .probing: isPushHeld = true
            case .present: break
            }
            carryOut()
        }

        /// Suspends one side's app, or one of its sockets.
        mutating func suspend(_ side: RoomSide, allBut kept: UInt64? = nil) {
            for socket in sockets[side] ?? [] where kept.map({ $0 != socket }) ?? (chance.upTo(2) == 0) { living.remove(socket) }
            pongs.removeAll { !living.contains($0.socket) }
        }

        private mutating func knock(_ side: RoomSide) {
            if side == StaleSocketTests.silent { knocks.append(stage.now) }
            if let accepted = acceptedAt[side], stage.now < accepted + 30_000 {
                stage.on { $0.checkAgain(side, at: accepted + 30_000, now: $1) }
            } else {
                acceptedAt[side] = stage.now
            }
        }

        private mutating func carryOut() {
            let effects = stage.take()
            for effect in effects {
                switch effect {
                case .ping(let side, let pinged, let number):
                    if let before = pingedAt[side], stage.now < before + 2_000 { faults.append("two probes within 2 s") }
                    pingedAt[side] = stage.now
                    for socket in pinged where living.contains(socket) {
                        pongs.append((stage.now + chance.upTo(1_900), socket, number))
                    }
                case .close(let socket):
                    for side in [StaleSocketTests.silent, StaleSocketTests.waiting] { sockets[side]?.removeAll { $0 == socket } }
                    living.remove(socket)
                case .left(StaleSocketTests.silent): hasLeft = true
                case .absent(let side, let knocks):
                    if side == StaleSocketTests.silent, isPushHeld {
                        isPushHeld = false
                        self.knocks.append(stage.now)
                    }
                    counting.subtract(sockets[side] ?? [])
                    if knocks { knock(side) }
                case .answered(StaleSocketTests.silent): isPushHeld = false
                case .knock(let side): knock(side)
                case .arrived, .left, .answered, .arm: break
                }
            }
            if stage.timers.count > 2 { faults.append("more than one timer for a side") }
            if !effects.isEmpty { carryOut() }
        }

        mutating func pass(_ ms: UInt64) {
            let end = stage.now + ms
            while true {
                let pong = pongs.indices.min { pongs[$0].at < pongs[$1].at }
                let next = min(pong.map { pongs[$0].at } ?? .max, stage.timers.values.min() ?? .max)
                guard next <= end else { break }
                // An answer counts if it comes at the moment at which the probe ends.
                if let pong, pongs[pong].at == next {
                    let (_, socket, number) = pongs.remove(at: pong)
                    stage.now = max(stage.now, next)
                    if living.contains(socket) {
                        counting.insert(socket)
                        stage.pong(socket, number)
                    }
                } else {
                    stage.pass(next - min(next, stage.now))
                }
                carryOut()
            }
            stage.pass(end - stage.now)
            carryOut()
        }

        mutating func anything(_ side: RoomSide) {
            switch chance.upTo(12) {
            case 0, 1: join(side, isLiving: true)
            case 2: join(side, isLiving: false)
            case 3: end(side, isDeliberate: true)
            case 4: end(side, isDeliberate: false)
            case 5: report(side)
            case 6: leave(side)
            case 7: suspend(side)
            case 8: push()
            default: pass(chance.upTo(chance.upTo(2) == 0 ? 1_000 : 8_000))
            }
        }
    }

    /// After a random history, one side waits and the other falls silent. The silent side is knocked at within 5 s, unless it left deliberately. A report
    /// without a socket is believed until it lapses.
    @Test(arguments: [false, true])
    func whoeverWaitsIsNotLeftWaiting(waitsByReports: Bool) throws {
        for seed in 0..<3_000 as Range<UInt64> {
            var story = Story(seed: seed)
            let (silent, waiting) = (Self.silent, Self.waiting)
            for _ in 0..<story.chance.upTo(30) { story.anything(story.chance.upTo(2) == 0 ? silent : waiting) }
            // A moment after the other side's last sign of life, often.
            if story.chance.upTo(2) == 0 { story.pass(story.chance.upTo(2_500)) }
            // Another of its sockets may answer until it ends, too.
            if story.chance.upTo(2) == 0 { story.join(silent, isLiving: true) }
            let answering = story.chance.upTo(2) == 0 ? story.sockets[silent]?.last ?? 0 : 0
            story.suspend(silent, allBut: answering)
            // Only one of the ways in which the side is present from now on.
            if waitsByReports { while story.sockets[waiting]?.isEmpty == false { story.end(waiting, isDeliberate: false) } }
            let start = story.stage.now
            var deadline = start
            story.knocks = []
            story.hasLeft = false
            if waitsByReports { story.report(waiting) } else { story.join(waiting, isLiving: true) }
            for _ in 0..<5 {
                switch story.chance.upTo(6) {
                case 0:
                    let count = story.sockets[silent]?.count
                    story.end(silent, isDeliberate: story.chance.upTo(2) == 0)
                    if story.sockets[silent]?.count != count { deadline = story.stage.now }
                case 1: story.push()
                case 2: story.report(waiting)
                default: story.pass(story.chance.upTo(1_500))
                }
            }
            if story.sockets[silent]?.contains(answering) == true {
                story.end(answering, of: silent, isDeliberate: story.chance.upTo(2) == 0)
                deadline = story.stage.now
            }
            if story.counting.isDisjoint(with: story.sockets[silent] ?? []) { deadline = max(deadline, story.reportedUntil) }
            while story.stage.now < deadline + 40_000 {
                story.pass(20_000)
                if waitsByReports { story.report(waiting) }
            }
            let isInTime = story.knocks.contains { $0 <= deadline + 5_000 }
            let waits = story.knocks.map { $0 - start }
            #expect(isInTime || story.hasLeft, "seed \(seed): \(waits), not by \(deadline + 5_000 - start)")
            #expect(story.faults.isEmpty, "seed \(seed)")
        }
    }
}
