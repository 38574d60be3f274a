@testable import Ledger

/// What may be done to an honest history so that it is a lie which must be caught.
enum Damage: CaseIterable {
    case dropSeal, dropOpening, dropPurge, dropRatchets
    case repeatSeal, repeatOpening, repeatOutcome, repeatPurge
    case outcomeBeforeOpening, openingAfterPurge, purgeAtTheEnd
    case otherRef, otherJob, earlierTime

    /// The damaged history, nil if this one offers no place for it.
    func applied(to story: [Entry], using random: inout SeededGenerator) -> [Entry]? {
        var story = story
        let end = story.last!.atMs
        let outcomes = Dictionary(grouping: story.indices.filter { story[$0].isOutcome }) { story[$0].job! }
        let seals = story.indices.filter { story[$0].untilMs != nil }
        let openings = story.indices.filter { story[$0].isOpening }
        let purges = story.indices.filter { story[$0].isPurge }
        let until = Dictionary(uniqueKeysWithValues: seals.map { (story[$0].ref!, story[$0].untilMs!) })
        let lastStart = story.last { if case .brokerStarted = $0.op { true } else { false } }!.atMs
        // Purges that are missed at the end, whatever the last start excuses.
        let missed = purges.filter { until[story[$0].ref!]! + 120_000 < end && lastStart + 120_000 < end }

        func pick(_ places: [Int]) -> Int? { places.randomElement(using: &random) }
        switch self {
        case .dropSeal:
            guard let place = pick(seals.filter { seal in story.contains { $0.ref == story[seal].ref && $0.untilMs == nil } })
            else { return nil }
            story.remove(at: place)
        case .dropOpening:
            guard let place = pick(openings.filter { outcomes[story[$0].job!] != nil }) else { return nil }
            story.remove(at: place)
        case .dropPurge:
            guard let place = pick(missed) else { return nil }
            story.remove(at: place)
        case .dropRatchets:
            guard end > lastStart + 1_500_000 else { return nil }
            story.removeAll { if case .keysRatcheted = $0.op { $0.atMs >= lastStart } else { false } }
        case .repeatSeal, .repeatOpening, .repeatOutcome, .repeatPurge:
            let places =
                self == .repeatSeal
                ? seals
                : self == .repeatOpening ? openings : self == .repeatPurge ? purges : outcomes.values.map { $0[0] }.sorted()
            guard let place = pick(places) else { return nil }
            let later = Int.random(in: place...story.count - 1, using: &random) + 1
            var copy = story[place]
            copy.atMs = story[later - 1].atMs
            story.insert(copy, at: later)
        case .outcomeBeforeOpening:
            guard let place = pick(openings.filter { outcomes[story[$0].job!] != nil }) else { return nil }
            var outcome = story.remove(at: outcomes[story[place].job!]![0])
            outcome.atMs = story[place].atMs
            story.insert(outcome, at: place)
        case .openingAfterPurge:
            guard let place = pick(openings.filter { opening in purges.contains { story[$0].ref == story[opening].ref } }) else {
                return nil
            }
            let purge = purges.first { story[$0].ref == story[place].ref }!
            var opening = story[place]
            opening.atMs = story[purge].atMs
            story.insert(opening, at: purge + 1)
            story.remove(at: place)
        case .purgeAtTheEnd:
            guard let place = pick(missed) else { return nil }
            var purge = story.remove(at: place)
            purge.atMs = end
            story.append(purge)
        case .otherRef:
            guard let place = pick(openings + purges + outcomes.values.map { $0[0] }.sorted()) else { return nil }
            story[place].op = story[place].op.with(ref: OpaqueID(UInt128.random(in: .min ... .max, using: &random)))
        case .otherJob:
            guard let place = pick(outcomes.values.map { $0[0] }.sorted()) else { return nil }
            guard case .pushDelivered(let ref, _, let status) = story[place].op else {
                story[place].op = .pushDelivered(ref: story[place].ref!, job: OpaqueID(0), status: 200)
                break
            }
            story[place].op = .pushDelivered(ref: ref, job: OpaqueID(0), status: status)
        case .earlierTime:
            guard let place = pick(story.indices.filter { $0 > 0 }) else { return nil }
            story[place].atMs = story[place - 1].atMs - 1000
        }
        return story
    }
}

extension Entry {
    var untilMs: UInt64? { if case .tokenSealed(_, _, let until) = op { until } else { nil } }
    var isOpening: Bool { if case .tokenOpened = op { true } else { false } }
    var isPurge: Bool { if case .tokenPurged = op { true } else { false } }
    var isOutcome: Bool { job != nil && !isOpening }
    var job: OpaqueID? {
        switch op {
        case .tokenOpened(_, let job, _), .pushDelivered(_, let job, _), .pushFailed(_, let job, _, _): job
        default: nil
        }
    }
}

extension Entry.Op {
    func with(ref: OpaqueID) -> Self {
        switch self {
        case .tokenOpened(_, let job, let template): .tokenOpened(ref: ref, job: job, template: template)
        case .pushDelivered(_, let job, let status): .pushDelivered(ref: ref, job: job, status: status)
        case .pushFailed(_, let job, let status, let reason): .pushFailed(ref: ref, job: job, status: status, reason: reason)
        case .tokenPurged(_, let cause): .tokenPurged(ref: ref, cause: cause)
        default: self
        }
    }
}
