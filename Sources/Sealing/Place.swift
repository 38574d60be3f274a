/// Under which epoch key a row lies that the broker itself must find again: the generation that sealed it, and its expiry.
///
/// The expiries of an audience's rows stand on a grid that begins with the generation. So who looks for a row knows every place where it
/// may lie, and the key of its index can die with the row.
public struct Place: Sendable, Hashable {
    public let generation: UInt32
    /// Unix ms.
    public let expiryMs: UInt64

    public init(generation: UInt32, expiryMs: UInt64) {
        self.generation = generation
        self.expiryMs = expiryMs
    }
}

extension KeyRing {
    /// Where a row of this life is sealed now: `expiry = born + k * step + life`, for the largest k whose step has begun. So it lives for
    /// `life` at most and a step less at least, and all that is sealed in one step expires together.
    ///
    /// `nowMs`: broker time. What counts is the ratchet's epoch, in which broker time is told apart only for steps that are shorter: a broker
    /// time that has leapt ahead of the ratchet gives rows a shorter life, and none that could not be found.
    public func place(lifeMs: UInt64, stepMs: UInt64, nowMs: UInt64) -> Place {
        withRatchet { $0.place(lifeMs, stepMs, nowMs) }
    }

    /// Every place where a row of this life that has not expired may lie, latest expiry first.
    ///
    /// A generation takes seals for a day, so there are as many as steps in `lifeMs`, rounded up, and one for each day.
    public func places(lifeMs: UInt64, stepMs: UInt64, nowMs: UInt64) -> [Place] {
        withRatchet { $0.places(lifeMs, stepMs, nowMs) }
    }
}

extension KeyRing {
    /// Makes the keys of these places ahead of need, one after the other, so that others pass between: after a start it takes a look-up over
    /// a month 0.1 s. Call it on a thread that may wait.
    public func prepare(_ places: [Place]) {
        for place in places { _ = derivation(place.generation, place.expiryMs, .ownerIndex)?.digest() }
    }
}

extension Ratchet {
    func place(_ lifeMs: UInt64, _ stepMs: UInt64, _ nowMs: UInt64) -> Place {
        precondition(stepMs > 0)
        let current = generations[generations.count - 1]
        let begun = (sealingTime(nowMs) - current.born.startMs) / stepMs * stepMs
        return Place(generation: current.id, expiryMs: current.born.startMs + begun + lifeMs)
    }

    func places(_ lifeMs: UInt64, _ stepMs: UInt64, _ nowMs: UInt64) -> [Place] {
        precondition(stepMs > 0)
        var places: [Place] = []
        // Each generation's steps come after those of the one before.
        var last = sealingTime(nowMs)
        for generation in generations.reversed() {
            let first = generation.born.startMs
            last = min(last, lastSeal(generation))
            var start = first + (last - first) / stepMs * stepMs
            while start + lifeMs > nowMs {
                places.append(Place(generation: generation.id, expiryMs: start + lifeMs))
                if start == first { break }
                start -= stepMs
            }
            last = first - 1
        }
        return places
    }

    /// Broker time within the ratchet's epoch, which the key file remembers.
    private func sealingTime(_ nowMs: UInt64) -> UInt64 {
        let current = generations[generations.count - 1]
        let now = min(max(nowMs, Epoch(base.number + 1).startMs), Epoch(base.number + 1).endMs - 1)
        return max(current.born.startMs, min(now, lastSeal(current)))
    }

    /// The step into the epoch in which a generation is a day old begins another.
    private func lastSeal(_ generation: Generation) -> UInt64 { Epoch(generation.born.number + Epoch.perDay).startMs - 1 }
}
