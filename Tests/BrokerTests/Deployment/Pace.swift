import Policy

/// How fast a deployment's people live and its faults come. All times are in ms, except where a name says seconds.
enum Pace: Sendable {
    /// A rush for minutes, with windows and rooms of seconds to minutes.
    case minutes
    /// Days with quiet nights and two rush hours each, the windows of the built-in policy, and rooms that live for up to a day.
    case days

    /// The length of a window of the log, in seconds.
    var resolution: UInt64 { self == .minutes ? 5 : 60 }

    /// How many of the log's last entries the database keeps for nodes that don't serve yet.
    var keptForWaiting: Int { self == .minutes ? 50 : 65_536 }

    var timing: LedgerTiming {
        switch self {
        case .minutes: LedgerTiming(hourSeconds: resolution, daySeconds: resolution, batchSeals: 1)
        case .days: LedgerTiming(hourSeconds: 3_600, daySeconds: 86_400, batchSeals: 64)
        }
    }

    /// Of rooms.
    var longestLifeSeconds: UInt64 { self == .minutes ? 360 : 86_400 }

    func lifeSeconds(_ chance: Chance) -> UInt64 {
        self == .days && chance.upTo(3) > 0 ? 60 + chance.upTo(3_600) : 150 + chance.upTo(longestLifeSeconds - 150 + 1)
    }

    /// Of a room in which one waits for the other.
    var vigilSeconds: UInt64 { self == .minutes ? 360 : 600 }

    /// The longest time between two acts.
    /// - Parameter now: unix ms.
    func longestPause(at now: UInt64) -> UInt64 {
        if self == .minutes { return 400 }
        let minute = now / 60_000 % 1_440
        switch minute {
        case ..<420: return 900_000
        case 540..<542, 1_200..<1_203: return 400
        default: return 120_000
        }
    }

    /// After how long somebody who has come goes again, if nothing else happens. Nil: he stays.
    func visit(_ chance: Chance) -> UInt64? {
        self == .minutes ? nil : chance.upTo(20) == 0 ? chance.upTo(7_200_000) : chance.upTo(400_000)
    }

    /// The time until the next fault. Some promises are only checked in calm times.
    func nextFault(_ chance: Chance) -> UInt64 {
        switch self {
        case .minutes: chance.upTo(10) == 0 ? 60_000 + chance.upTo(90_000) : 1_000 + chance.upTo(10_000)
        case .days: chance.upTo(3) == 0 ? chance.upTo(120_000) : chance.upTo(14_400_000)
        }
    }

    /// How long a fault lasts.
    func fault(_ chance: Chance) -> UInt64 {
        if self == .days, chance.upTo(4) == 0 { return 60_000 + chance.upTo(chance.upTo(3) == 0 ? 10_800_000 : 900_000) }
        return 500 + (chance.upTo(3) == 0 ? chance.upTo(60_000) : chance.upTo(12_000))
    }

    /// How long a process that has ended stays away.
    func absence(_ chance: Chance) -> UInt64 {
        // As systemd starts it again.
        let restart: UInt64 = 5_000
        if self == .days, chance.upTo(6) == 0 { return restart + chance.upTo(10_800_000) }
        return restart + (chance.upTo(3) == 0 ? chance.upTo(60_000) : 0)
    }

    /// From this time after the first seal with a new generation on, no node seals with an older one.
    var generationSpreadMs: UInt64 { self == .minutes ? 400_000 : 1_800_000 }

    /// How long it takes until all that rooms have left is gone, once they are over.
    var afterlife: UInt64 { self == .minutes ? 900_000 : 90_000_000 }
}
