/// Published totals of the tokens that expire on one day. All times are unix seconds.
struct Bucket: Equatable {
    var until = 0
    var sealed = 0
    var carried = 0
    var expired = 0

    /// Tokens that have not expired; some may have been purged early.
    var remaining: Int { sealed + carried - expired }
}

/// The buckets that are not closed yet: one for each day that a policy lets a token live, at most.
struct Buckets {
    /// Oldest first.
    private(set) var open: [Bucket] = []
    /// The sum of all buckets'.
    private(set) var remaining = 0

    /// A missing bucket is empty.
    func find(_ until: Int) -> Bucket {
        let place = place(of: until)
        return place < open.count && open[place].until == until ? open[place] : Bucket(until: until)
    }

    mutating func carry(_ live: Int, until: Int) {
        open[make(until)].carried += live
        remaining += live
    }

    mutating func seal(until: Int) {
        open[make(until)].sealed += 1
        remaining += 1
    }

    /// Returns false if nothing is left to expire.
    mutating func expire(until: Int) -> Bool {
        let place = place(of: until)
        guard place < open.count, open[place].until == until, open[place].remaining > 0 else { return false }
        open[place].expired += 1
        remaining -= 1
        return true
    }

    mutating func close(_ until: Int) {
        let place = place(of: until)
        guard place < open.count, open[place].until == until else { return }
        remaining -= open.remove(at: place).remaining
    }

    private mutating func make(_ until: Int) -> Int {
        let place = place(of: until)
        if place == open.count || open[place].until != until { open.insert(Bucket(until: until), at: place) }
        return place
    }

    /// The place of the first bucket that ends at `until` or later.
    private func place(of until: Int) -> Int {
        var (low, high) = (0, open.count)
        while low < high {
            let middle = (low + high) / 2
            if open[middle].until < until { low = middle + 1 } else { high = middle }
        }
        return low
    }

    mutating func code(_ coder: inout StateCoder) {
        coder.code(&remaining)
        coder.code(&open, empty: Bucket()) { bucket, coder in
            coder.code(&bucket.until)
            coder.code(&bucket.sealed)
            coder.code(&bucket.carried)
            coder.code(&bucket.expired)
        }
    }
}
