/// The probability of guessing a join code, given a policy's budgets.
public struct Guessing: Sendable {
    public let limits: Limits

    public init(_ limits: Limits) { self.limits = limits }

    /// The characters of a code.
    public enum Alphabet: Int, Sendable, CaseIterable {
        case digits = 10
        /// a-z and 0-9, ignoring case.
        case alphanumerics = 36
    }

    /// Who guesses.
    public enum Guesser: Sendable, CaseIterable {
        /// One IPv4 address or IPv6 prefix.
        case oneAddress
        /// Enough addresses to use up the overall budget. Longer codes have no overall budget, so all distinguished addresses.
        case everyAddress
    }

    /// The most addresses distinguished in one window. Guesses at longer codes from further addresses aren't counted.
    public static let mostAddresses = 100_000

    /// Returns the guesses per day at codes of so many characters. Creating a room is also a guess, since it reveals whether its code was free.
    public func guessesPerDay(_ guesser: Guesser, characters: Int) -> Int {
        let (wrong, made) = (limits.wrongCodes, limits.creations)
        guard limits.isShort(codeOf: characters) else {
            return switch guesser {
            case .oneAddress: wrong.perAddress.perDay + made.perAddress.perDay
            case .everyAddress: wrong.perAddress.perDay * Self.mostAddresses + made.overall.perDay
            }
        }
        return switch guesser {
        case .oneAddress: wrong.perAddress.perDay + min(made.perAddress.perDay, limits.shortCreations.perDay)
        case .everyAddress: wrong.overall.perDay + min(made.overall.perDay, limits.shortCreations.perDay)
        }
    }

    /// Returns the probability that a day of guessing finds at least one of `rooms` rooms with uniform random codes.
    ///
    /// Guesses count as independent, since codes change during the day and a failed guess excludes little.
    public func hitsWithinDay(_ alphabet: Alphabet, characters: Int, rooms: Int, guesser: Guesser) -> Double {
        var codes = 1.0
        for _ in 0..<characters { codes *= Double(alphabet.rawValue) }
        return Self.atLeastOnce(min(1, Double(rooms) / codes), tries: guessesPerDay(guesser, characters: characters))
    }

    /// Returns 1 - (1 - p)^tries by doubling, which is exact for small p: h(a + b) = h(a) + h(b) - h(a) h(b).
    static func atLeastOnce(_ probability: Double, tries: Int) -> Double {
        var total = 0.0
        var power = probability
        var rest = tries
        while rest > 0 {
            if rest & 1 == 1 { total += power - total * power }
            power += power - power * power
            rest >>= 1
        }
        return total
    }
}

extension Double {
    /// A probability as text, never rounded to 0: `0.86 %`, `1 in 3,700,000`, `as good as certain`.
    var asProbability: String {
        if self > 0.9995 { return "as good as certain" }
        if self >= 0.001 {
            let hundredths = Int(self * 10_000 + 0.5)
            let rest = hundredths % 100
            return "\(hundredths / 100).\(rest < 10 ? "0" : "")\(rest) %"
        }
        if self <= 0 { return "none" }
        let odds = 1 / self
        guard odds < 1e15 else { return "less than 1 in \(Int(1e15).grouped)" }
        // The model justifies two digits at most.
        var unit = 1.0
        while odds / unit >= 100 { unit *= 10 }
        return "1 in \((Int(odds / unit) * Int(unit)).grouped)"
    }
}

extension Int {
    /// The number with a comma every three digits.
    var grouped: String {
        let digits = Array(String(magnitude))
        var text = self < 0 ? "-" : ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index) % 3 == 0 { text.append(",") }
            text.append(digit)
        }
        return text
    }
}
