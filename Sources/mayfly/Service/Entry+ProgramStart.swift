import Ledger
import Linux
import TLS
import Vocabulary

extension Entry.Op {
    /// The start of this program: its version, and the SHA-256 of its file.
    /// - Parameter policy: the one for rooms.
    static func programStarted(node: EntryText, policy: Digest, resolutionSeconds: UInt32) throws -> Entry.Op {
        guard let version = EntryText(Mayfly.version) else {
            throw CommandFailed("the version's name is invalid in the log")
        }
        return .brokerStarted(
            node: node, version: version, policy: policy, resolutionSeconds: resolutionSeconds, binary: try programDigest())
    }

    /// Reads the file that this process was started from, even if another has taken its name since.
    private static func programDigest() throws -> Digest {
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
