import Vocabulary

@testable import Broker

/// Presence with its timers, which fire as the clock passes them.
struct PresenceStage {
    /// The default settings.
    static let timing = PresenceState.Timing(graceMs: 5_000, reportMs: 45_000, probeMs: 2_000)

    var presence = PresenceState(Self.timing)
    var now: UInt64 = 1_000_000
    var timers: [RoomSide: UInt64] = [:]
    /// The effects since the last `take`, without timers.
    private var effects: [PresenceState.Effect] = []

    mutating func on(_ event: (inout PresenceState, UInt64) -> [PresenceState.Effect]) {
        for effect in event(&presence, now) {
            if case .arm(let place, let time) = effect { timers[place] = time } else { effects.append(effect) }
        }
    }

    mutating func join(_ socket: UInt64, _ place: RoomSide) { on { $0.join(socket, at: place, provenAt: $1, now: $1) } }
    mutating func end(_ socket: UInt64, _ isDeliberate: Bool) {
        on { $0.leave(socket, isDeliberate ? .deliberate : .broken, now: $1) }
    }
    mutating func report(_ place: RoomSide) { on { $0.report(place, now: $1) } }
    mutating func pong(_ socket: UInt64, _ number: UInt64) { on { $0.pong(socket, number: number, now: $1) } }

    mutating func check(_ place: RoomSide, isAwaited: Bool = true) -> PresenceState.Finding {
        let (finding, effects) = presence.check(place, isAwaited: isAwaited, now: now)
        on { _, _ in effects }
        return finding
    }

    mutating func pass(_ ms: UInt64) {
        let end = now + ms
        while let (place, time) = timers.min(by: { $0.value < $1.value }), time <= end {
            now = max(now, time)
            timers[place] = nil
            on { $0.fire(place, now: $1) }
        }
        now = end
    }

    mutating func take() -> [PresenceState.Effect] {
        defer { effects = [] }
        return effects
    }
}
