import Linux
import Sealing
import Vocabulary

@testable import Broker

/// A thief who copies the disk: that of the campaigns (`Tests/IntegrationTests/Adversaries`), which shares no code with the broker.
struct LifeThief {
    /// True while it waits for a good moment.
    var isWaiting = false
    /// A folder with what it has copied, and how many companions' devices were registered then.
    fileprivate(set) var copy: (folder: String, devices: Int)?
    /// How often it has looked.
    fileprivate(set) var visits = 0

    mutating func forgetCopy() {
        if let copy { try? File.removeTree(copy.folder) }
        copy = nil
    }
}

extension Life {
    /// Copies database and keys once a push is queued and a room that was accepted a while ago has a token.
    func copyState() async throws {
        guard thief.isWaiting, isCalm(60_000), let run, await run.broker.outbox.left.queued > 0 else { return }
        let isReady = meetings.values.contains { meeting in
            meeting.acceptedAt.map { $0 + 150_000 < machine.monotonic } == true && meeting.isSure
                && [meeting.creator, meeting.joiner].contains { $0.token != nil && $0.isTokenSure }
        }
        guard isReady else { return }
        thief.isWaiting = false
        thief.forgetCopy()
        let folder = try SimulatedBroker.makeFolder()
        thief.copy = (folder, devices.values.count { $0.kind == .companion && $0.isSure && $0.expires > brokerTime })
        for name in ["mayfly.sqlite", "mayfly.sqlite-wal", "ratchet.key"] {
            let bytes = try File.read("\(simulated.folder)/\(name)", limit: 1 << 30)
            try File.write("\(folder)/\(name)", bytes.span, mode: 0o600)
        }
        let rooms = meetings.values.map { meeting in
            "\(meeting.number) \(meeting.id.secret.withBytes { Hex.encode($0) })"
        }
        try File.write("\(folder)/rooms", Array(rooms.joined(separator: "\n").utf8).span, mode: 0o600)
    }

    /// Lets the thief look on a calm night. It has that night's keys, too, and all room ids.
    func rob() throws {
        guard let copy = thief.copy else { return }
        let root = (0..<4).reduce(#filePath) { path, _ in File.folder(of: path) }
        var told = [UInt8](repeating: 0, count: 4_096)
        var span = told.mutableSpan
        let arguments = [
            "-B", "\(root)/Tests/IntegrationTests/Adversaries/rob.py", copy.folder, "\(copy.devices)",
            simulated.folder + "/ratchet.key",
            "\(brokerTime)",
        ]
        // `scripts/setup test` makes it.
        let python = "\(root)/.build/venv/bin/python"
        let outcome = try ChildProcess.read(python, arguments: arguments, into: &span, deadlineMs: 600_000)
        guard case .ended(.status(0), _) = outcome else {
            let text = String(decoding: told.prefix { $0 > 0 }, as: UTF8.self)
            throw Broken(description: "a thief had \(copy.folder), \(outcome): \(text)")
        }
        thief.visits += 1
        thief.forgetCopy()
    }
}
