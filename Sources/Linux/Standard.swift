import Glibc

/// The standard streams, written at once and whole. A reader that went away is no error.
public enum Standard {
    public static func output(_ text: String) { write(text, to: 1) }
    public static func error(_ text: String) { write(text, to: 2) }

    public struct LineTooLong: Error, Sendable, CustomStringConvertible {
        let limit: Int
        public var description: String { "the first line of standard input has more than \(limit) bytes" }
    }

    /// The next line of standard input without its newline; nil at the end. Not buffered, so that no other copy of it stays in memory.
    /// - Throws: `LineTooLong` when it has more than `limit` bytes.
    public static func inputLine(limit: Int) throws(LineTooLong) -> [UInt8]? {
        var line: [UInt8] = []
        line.reserveCapacity(limit)
        var byte: UInt8 = 0
        while true {
            let count = unsafe Glibc.read(0, &byte, 1)
            if count < 0 && errno == EINTR { continue }
            guard count == 1 else { return line.isEmpty ? nil : line }
            if byte == UInt8(ascii: "\n") { return line }
            guard line.count < limit else {
                wipe(&line)
                throw LineTooLong(limit: limit)
            }
            line.append(byte)
        }
    }

    private static func write(_ text: String, to descriptor: Int32) {
        var text = text
        text.withUTF8 { bytes in
            var start = 0
            while start < bytes.count {
                let written = unsafe Glibc.write(descriptor, bytes.baseAddress! + start, bytes.count - start)
                if written < 0 && errno == EINTR { continue }
                guard written > 0 else { return }
                start += written
            }
        }
    }
}
