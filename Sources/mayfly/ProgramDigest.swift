import Ledger
import Linux
import TLS
import Vocabulary

/// The SHA-256 of this program's file, for the log.
enum ProgramDigest {
    /// Reads the file that this process was started from, even if another has taken its name since.
    static func get() throws -> Digest {
        let file = try OpenFile("/proc/self/exe", .read)
        var hash = StreamedSHA256()
        var chunk = [UInt8](repeating: 0, count: 65_536)
        var offset = 0
        while true {
            var buffer = chunk.mutableSpan
            let count = try file.read(into: &buffer, at: offset)
            hash.update(chunk.span.extracting(first: count))
            offset += count
            if count < chunk.count { break }
        }
        let bytes = hash.finish()
        guard let digest = Digest(bytes: bytes.span) else { preconditionFailure("SHA-256 has 32 bytes") }
        return digest
    }
}
