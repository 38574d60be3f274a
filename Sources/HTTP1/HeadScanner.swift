import Glibc

/// Looks at the raw lines of a head before llhttp does, for what some of its versions let through: a line end other than CR LF, and a
/// header line continued on the next one (obs-fold, RFC 9112 section 5.2). Either lets two readers of one stream see different messages.
struct HeadScanner {
    private(set) var isAtEnd = false
    private(set) var byteCount = 0
    /// Bytes of the first line without its end, and the last eight of them.
    private(set) var firstLineCount = 0
    private(set) var firstLineTail: UInt64 = 0
    private var lineCount = 0
    private var endsInCarriageReturn = false
    private var sawLine = false

    init() {}

    /// For the trailer section of a chunked body, which may be empty.
    static func forTrailers() -> HeadScanner {
        var scanner = HeadScanner()
        scanner.sawLine = true
        return scanner
    }

    /// Scans the next bytes up to the end of the head.
    /// - Returns: false when the head is refused.
    mutating func scan(_ bytes: UnsafePointer<CChar>, _ count: Int) -> Bool {
        var start = unsafe bytes
        let end = unsafe bytes + count
        while unsafe start < end, !isAtEnd {
            let found = unsafe memchr(start, 0x0A, end - start)
            let feed = unsafe found.map { unsafe UnsafePointer($0.assumingMemoryBound(to: CChar.self)) }
            guard unsafe scanLine(start, (feed ?? end) - start, endsHere: feed != nil) else { return false }
            byteCount += unsafe (feed.map { unsafe $0 + 1 } ?? end) - start
            unsafe start = feed.map { unsafe $0 + 1 } ?? end
        }
        return true
    }

    /// One line, or a piece of one, without its line feed.
    private mutating func scanLine(_ piece: UnsafePointer<CChar>, _ count: Int, endsHere: Bool) -> Bool {
        if count > 0 {
            if endsInCarriageReturn { return false }
            if lineCount == 0, unsafe sawLine && (piece[0] == 0x20 || piece[0] == 0x09) { return false }
            if let carriageReturn = unsafe memchr(piece, 0x0D, count) {
                let place = unsafe carriageReturn.assumingMemoryBound(to: CChar.self) - UnsafeMutablePointer(mutating: piece)
                if place != count - 1 { return false }
                endsInCarriageReturn = true
            }
            if !sawLine { unsafe noteFirstLine(piece, endsInCarriageReturn ? count - 1 : count) }
            lineCount += count
        }
        guard endsHere else { return true }
        guard endsInCarriageReturn else { return false }
        // Blank lines before a request line are allowed (RFC 9112 section 2.2); the first one after it ends the head.
        if lineCount > 1 { sawLine = true } else if sawLine { isAtEnd = true }
        lineCount = 0
        endsInCarriageReturn = false
        return true
    }

    private mutating func noteFirstLine(_ piece: UnsafePointer<CChar>, _ count: Int) {
        firstLineCount += count
        for index in max(0, count - 8)..<count {
            firstLineTail = unsafe firstLineTail << 8 | UInt64(UInt8(bitPattern: piece[index]))
        }
    }
}
