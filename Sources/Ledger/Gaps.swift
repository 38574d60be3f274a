/// The times in which no broker ran. Each ends with a `broker.started`. All times are unix seconds.
struct Gaps {
    /// A shorter silence is no gap.
    static let shortest = 60
    /// How long gaps may be in one UTC day.
    static let dayLimit = 3_600

    struct Span: Equatable {
        var start = 0
        var end = 0
    }

    private(set) var total = 0
    private var spans: [Span] = []
    /// The last UTC day with a gap, and how long its gaps are.
    private var day = -1
    private var daySeconds = 0

    /// Adds a gap. Returns true if a day now has more than an hour of gaps.
    mutating func record(_ span: Span) -> Bool {
        spans.append(span)
        total += span.end - span.start
        var isTooLong = false
        // Days between the first and the last are gaps as a whole.
        for start in Set([span.start / 86_400 * 86_400, span.end / 86_400 * 86_400]).sorted() {
            if start != day { (day, daySeconds) = (start, 0) }
            daySeconds += min(span.end, start + 86_400) - max(span.start, start)
            isTooLong = isTooLong || daySeconds > Self.dayLimit
        }
        return isTooLong || span.end - span.start > 86_400
    }

    /// How much of the time from `due` to `at` was gap.
    func overlap(from due: Int, to at: Int) -> Int {
        var sum = 0
        for span in spans.reversed() {
            if span.end <= due { break }
            sum += max(0, min(span.end, at) - max(span.start, due))
        }
        return sum
    }

    /// Returns whether a gap begins by `limit` and ends at `due` or later.
    func cover(_ due: Int, upTo limit: Int) -> Bool { spans.contains { $0.start <= limit && $0.end >= due } }

    /// The first multiple of `step` after `time` that is in no gap, where each gap counts as `margin` longer on both sides.
    func firstOutside(after time: Int, step: Int, margin: Int) -> Int {
        var found = (time / step + 1) * step
        for span in spans {
            if found < span.start - margin { break }
            if found <= span.end + margin { found = ((span.end + margin) / step + 1) * step }
        }
        return found
    }

    /// Drops gaps that can't excuse anything that is due at `time` or later.
    mutating func forget(before time: Int) { spans.removeAll { $0.end < time } }

    mutating func code(_ coder: inout StateCoder) {
        coder.code(&total)
        coder.code(&day)
        coder.code(&daySeconds)
        coder.code(&spans, empty: Span()) { span, coder in
            coder.code(&span.start)
            coder.code(&span.end)
        }
    }
}
