import Vocabulary

/// An answer of Apple's.
struct Answer: Sendable, Equatable {
    var status: Int
    /// `other` unless Apple gives the reason with this status: a proxy's or a damaged answer must not purge a token.
    var reason: APNsReason
    /// Since when the token is bad; with 410 only.
    var timestamp: AnswerBody.Timestamp
    /// `Retry-After`.
    var retryAfterMs: UInt64?

    /// - Parameters:
    ///   - body: may be empty; then the status alone counts. So it does with what is not JSON, but for purging.
    ///   - retryAfter: the header's value; whole seconds, other forms are ignored.
    init(status: Int, body: [UInt8], retryAfter: String? = nil) {
        self.status = status
        let fields = AnswerBody(body)
        let named = fields.reason.flatMap { APNsReason(rawValue: $0) }
        reason = named?.status == status ? named ?? .other : .other
        timestamp = fields.timestamp
        retryAfterMs = retryAfter.flatMap { Self.delayMs($0) }
    }

    /// Whole seconds; what no number holds is the longest.
    private static func delayMs(_ text: String) -> UInt64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else { return nil }
        let (ms, isTooLong) = (UInt64(text) ?? .max).multipliedReportingOverflow(by: 1000)
        return isTooLong ? .max : ms
    }

    /// What an answer says about the provider's standing on its connection.
    enum Admission { case admitted, turnedAway, unclear }

    /// Apple looks at the provider first: whatever it finds fault with after that, the provider was let in.
    var admission: Admission {
        switch status {
        case 403: .turnedAway
        case 429 where reason == .tooManyProviderTokenUpdates: .turnedAway
        case 500...: .unclear
        default: .admitted
        }
    }

    /// By the reason, or by the status where that says nothing.
    var reaction: Reaction {
        guard reason == .other else { return reason.reaction }
        return switch status {
        case 403: .configuration
        case 410: .purgeIfOlder
        case 429: .holdToken
        case 500...599: .retry
        default: .drop
        }
    }
}

/// The two members of an answer's JSON object that matter, read by a strict scanner; all other bytes are skipped.
struct AnswerBody: Equatable {
    enum Timestamp: Sendable, Equatable {
        case absent
        /// No whole number that fits, or the body is not whole and may have had one. See docs/decisions/0043-answers-that-are-not-whole.md.
        case unreadable
        /// Unix ms.
        case at(UInt64)
    }

    private(set) var reason: String?
    private(set) var timestamp = Timestamp.absent

    init(_ body: [UInt8]) {
        guard !body.isEmpty else { return }
        self.timestamp = .unreadable
        var scanner = Scanner(body)
        scanner.skipSpace()
        guard scanner.take(UInt8(ascii: "{")) else { return }
        var reason: String?
        var timestamp = Timestamp.absent
        scanner.skipSpace()
        if scanner.take(UInt8(ascii: "}")) {
            self.timestamp = .absent
            return
        }
        repeat {
            scanner.skipSpace()
            guard let name = scanner.string() else { return }
            scanner.skipSpace()
            guard scanner.take(UInt8(ascii: ":")) else { return }
            scanner.skipSpace()
            switch name {
            case "reason" where scanner.next == UInt8(ascii: "\""):
                guard let value = scanner.string() else { return }
                reason = value
            case "timestamp":
                // Of two, neither is to be believed.
                let isFirst = timestamp == .absent
                timestamp = .unreadable
                let start = scanner.index
                if let value = scanner.number() {
                    if isFirst { timestamp = .at(value) }
                } else {
                    scanner.index = start
                    guard scanner.skipValue() else { return }
                }
            default: guard scanner.skipValue() else { return }
            }
            scanner.skipSpace()
        } while scanner.take(UInt8(ascii: ","))
        guard scanner.take(UInt8(ascii: "}")) else { return }
        self.reason = reason
        self.timestamp = timestamp
    }
}

private struct Scanner {
    let bytes: [UInt8]
    var index = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var next: UInt8? { index < bytes.count ? bytes[index] : nil }

    mutating func take(_ byte: UInt8) -> Bool {
        guard next == byte else { return false }
        index += 1
        return true
    }

    mutating func skipSpace() {
        while let byte = next, byte == 0x20 || (0x09...0x0d).contains(byte) { index += 1 }
    }

    /// A string; escapes are left as they are, none of the names that matter has one.
    mutating func string() -> String? {
        guard take(UInt8(ascii: "\"")) else { return nil }
        let start = index
        while let byte = next {
            if byte == UInt8(ascii: "\"") {
                index += 1
                return String(decoding: bytes[start..<index - 1], as: UTF8.self)
            }
            index += byte == UInt8(ascii: "\\") ? 2 : 1
        }
        return nil
    }

    /// Digits alone, without a fraction.
    mutating func number() -> UInt64? {
        let start = index
        var value: UInt64 = 0
        while let byte = next, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) {
            let (tenfold, tooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, overflow) = tenfold.addingReportingOverflow(UInt64(byte - UInt8(ascii: "0")))
            guard !tooLarge, !overflow else { return nil }
            value = sum
            index += 1
        }
        guard index > start, next.map({ [0x20, 0x2c, 0x7d].contains($0) || (0x09...0x0d).contains($0) }) ?? true else {
            return nil
        }
        return value
    }

    /// Past any value, to the `,` or `}` that follows it.
    mutating func skipValue() -> Bool {
        var depth = 0
        while let byte = next {
            switch byte {
            case UInt8(ascii: "\""):
                guard string() != nil else { return false }
                continue
            case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
            case UInt8(ascii: "}") where depth == 0, UInt8(ascii: ",") where depth == 0: return true
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            default: break
            }
            guard depth >= 0 else { return false }
            index += 1
        }
        return false
    }
}
