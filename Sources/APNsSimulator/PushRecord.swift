import Linux

/// A file that outlives the process: which pushes were accepted, and which of their answers the socket has taken. For tests that
/// kill the simulator. Lines are `<apns-id> accepted` and `<apns-id> answered`; there is no token in it.
final class PushRecord {
    private let file: OpenFile
    private var pending: [UInt8] = []

    /// - Throws: `Errno`.
    init(_ path: String) throws(Errno) { file = try OpenFile(path, .append(mode: 0o600)) }

    func accepted(_ id: [UInt8]) { put(id, " accepted\n") }
    func answered(_ id: [UInt8]) { put(id, " answered\n") }

    private func put(_ id: [UInt8], _ outcome: StaticString) {
        pending += id
        pending += outcome.description.utf8
    }

    /// Writes down what was told since: before anything that depends on it leaves.
    /// - Throws: `Errno`: then no answer must leave.
    func write() throws(Errno) {
        guard !pending.isEmpty else { return }
        // A span must not outlive an access to a class.
        let lines = exchange(&pending, with: [])
        try file.write(lines.span, at: 0)
    }
}
