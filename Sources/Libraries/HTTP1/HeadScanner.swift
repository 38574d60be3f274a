import Glibc

/// Checks the raw lines of a head before llhttp, for two faults that some of its versions accept. One is a line end other than CR LF. The other is a
/// header line continued on the next line (obs-fold, RFC 9112 section 5.2). Either would let two parsers see different messages in one stream.
struct HeadScanner {
    private(set) var isAtEnd = false
    private(set) var byteCount = 0
    /// The number of bytes of the first line without its end.
    private(set) var firstLineCount = 0
    /// The last eight bytes of the first line.
    private(set) var firstLineTail: UInt64 = 0
    private var lineCount = 0
    private var endsInCarriageReturn = false
    private var sawLine = false

    /// A scanner for the trailer section of a chunked body, which may be empty.
    static func forTrailers() -> HeadScanner {
        var scanner = HeadScanner()
        scanner.sawLine = true
        return scanner
    }

    /// Scans the next bytes up to the end of the head.
    /// - Returns: false if the head is refused.
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

    /// Scans a line or a part of a line, without its line feed.
    private mutating func scanLine(_ piece: UnsafePointer<CChar>, _ count: Int, endsHere: Bool) -> Bool {
        if count > 0 {
            if endsInCarriageReturn { return false }
            if lineCount == 0, unsafe sawLine && (piece[0] == 0x20 || piece[0] == 0x09) { return false }
            if let carriageReturn = unsafe memchr(piece, 0x0D, count) {
                let place = unsafe carriageReturn.assumingMemoryBound(to: CChar.self) - UnsafeMutablePointer(mutating: piece)
                if place != count - 1 { return false }
                endsInCarriageReturn = true
            }
            if !sawLine { unsafe recordFirstLine(piece, endsInCarriageReturn ? count - 1 : count) }
            lineCount += count
        }
        guard endsHere else { return true }
        guard endsInCarriageReturn else { return false }
        // Blank lines before a request line are allowed (RFC 9112 section 2.2). The first blank line after it ends the head.
        if lineCount > 1 { sawLine = true } else if sawLine { isAtEnd = true }
        lineCount = 0
        endsInCarriageReturn = false
        return true
    }

    private mutating func recordFirstLine(_ piece: UnsafePointer<CChar>, _ count: Int) {
        firstLineCount += count
        for index in max(0, count - 8)..<count {
            firstLineTail = unsafe firstLineTail << 8 | UInt64(UInt8(bitPattern: piece[index]))
        }
    }
}
