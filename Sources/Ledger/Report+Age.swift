/// How old a log is, by the auditor's own clock.
extension Report {
    /// Seconds from the last entry to `now`, both unix seconds. Negative if the entry is dated later, nil for an empty log.
    public func age(now: UInt64) -> Int64? { toMs.map { Int64(clamping: now) - Int64(clamping: $0 / 1000) } }

    /// The age in words, for a line of text.
    public func ageText(now: UInt64) -> String {
        guard let age = age(now: now) else { return "no entry yet" }
        let text = Self.text(age.magnitude)
        return age < 0 ? "last entry dated \(text) ahead of this clock" : "last entry \(text) old"
    }

    /// - Throws: `stale` if the last entry is more than `limit` seconds away from `now`, or if there is none. A date in the future is no
    ///   sign of life either.
    public func checkAge(limit: UInt64, now: UInt64) throws(VerificationFailure) {
        if let age = age(now: now), age.magnitude <= limit { return }
        throw VerificationFailure(
            .stale,
            "\(ageText(now: now)), where \(Self.text(limit)) is allowed: no broker writes this log now, this copy lags, or a clock is "
                + "wrong")
    }

    /// A length of time by its two largest units.
    private static func text(_ seconds: UInt64) -> String {
        let units: [(UInt64, String)] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
        guard let first = units.firstIndex(where: { seconds >= $0.0 }) else { return "0 s" }
        var (rest, parts): (UInt64, [String]) = (seconds, [])
        for (length, name) in units[first...].prefix(2) {
            if rest >= length { parts.append("\(rest / length) \(name)") }
            rest %= length
        }
        return parts.joined(separator: " ")
    }
}
