import Vocabulary

/// Reads a source's files and says of each what is wrong with it.
struct LogReader: Sendable {
    private let source: any LogSource

    init(_ source: any LogSource) { self.source = source }

    func file(_ path: String) async throws(VerificationFailure) -> [UInt8] {
        guard let bytes = try await fileIfThere(path) else {
            let more = path == TilePath.checkpoint ? ": there is no log here. A broker's log is under /audit/" : ""
            throw VerificationFailure(.missing, "is missing\(more)", file: path)
        }
        return bytes
    }

    /// The first `width` hashes of a tile.
    func tile(_ full: String, width: Int) async throws(VerificationFailure) -> [UInt8] {
        let (bytes, isLonger) = try await partOrFull(full, width: width)
        let count = width * Digest.count
        guard bytes.count == count || (isLonger && bytes.count > count) else {
            throw VerificationFailure(.damaged, "is not \(count) bytes long", file: TilePath.path(full, width: width))
        }
        return Array(bytes.prefix(count))
    }

    /// A bundle that begins with `width` entries, and ends with them too unless `isLonger`.
    func bundle(_ full: String, width: Int) async throws(VerificationFailure) -> (bytes: [UInt8], isLonger: Bool) {
        try await partOrFull(full, width: width)
    }

    /// The widths of the partial files that lie beside a full one; none from a source that can't tell.
    func partialWidths(_ full: String) async throws(VerificationFailure) -> [Int] {
        let folder = TilePath.partialFolder(full)
        do {
            // Anyone may have put another name there: it is no file of the log.
            return try await source.list(folder)?.compactMap { name in
                Int(name).flatMap { (1..<TilePath.fullWidth).contains($0) && String($0) == name ? $0 : nil }
            } ?? []
        } catch { throw VerificationFailure(.unreadable, "can't be listed: \(error)", file: folder) }
    }

    /// A log that grows while it is read may drop a partial file for the full one, which begins with the same bytes.
    private func partOrFull(_ full: String, width: Int) async throws(VerificationFailure) -> (bytes: [UInt8], isLonger: Bool) {
        let path = TilePath.path(full, width: width)
        if let bytes = try await fileIfThere(path) { return (bytes, false) }
        guard width < TilePath.fullWidth, let bytes = try await fileIfThere(full) else {
            throw VerificationFailure(.missing, "is missing", file: path)
        }
        return (bytes, true)
    }

    func fileIfThere(_ path: String) async throws(VerificationFailure) -> [UInt8]? {
        do {
            return try await source.read(path)
        } catch { throw VerificationFailure(.unreadable, "can't be read: \(error)", file: path) }
    }
}
