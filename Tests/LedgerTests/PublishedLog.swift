@testable import Ledger

/// A log in memory, to be damaged.
struct MemorySource: LogSource {
    var files: [String: [UInt8]] = [:]

    func read(_ path: String) async throws -> [UInt8]? { files[path] }

    func list(_ folder: String) async throws -> [String]? {
        files.keys.filter { $0.hasPrefix(folder + "/") }.map { String($0.dropFirst(folder.count + 1)) }
    }
}

/// A log published window by window, as a broker does.
struct PublishedLog {
    static let key = try! signingKey("log.example/a")

    /// The policy of an ordinary story.
    static let policy = HonestBroker.Setting().policy

    /// What a log begins with.
    static func start(_ atMs: UInt64 = 0, resolution: UInt32 = 1, policy: [UInt8] = Self.policy) -> Entry {
        let name = EntryText("n")!
        return Entry(
            atMs: atMs,
            .brokerStarted(
                node: name, version: name, policy: sha256(policy), resolutionSeconds: resolution, binary: sha256([])))
    }

    var source = MemorySource()
    /// Of each publication.
    private(set) var checkpoints: [[UInt8]] = []
    private var log = TileLog()

    init(_ entries: [Entry] = [], policies: [[UInt8]] = [Self.policy], key: SigningKey = Self.key) {
        for policy in policies { source.files[TilePath.policy(sha256(policy))] = policy }
        publish([], key)
        var start = 0
        for index in entries.indices where index + 1 == entries.count || entries[index + 1].atMs != entries[index].atMs {
            publish(entries[start...index].map(\.encoded), key)
            start = index + 1
        }
    }

    mutating func publish(_ batch: [[UInt8]], _ key: SigningKey = Self.key) {
        let plan = log.append(batch)
        for file in plan.files {
            source.files[file.path] = file.bytes
            let partials = TilePath.partialFolder(file.path) + "/"
            for path in source.files.keys where path.hasPrefix(partials) { source.files[path] = nil }
        }
        let checkpoint = key.sign(size: plan.newSize, root: plan.root).encoded
        source.files[TilePath.checkpoint] = checkpoint
        checkpoints.append(checkpoint)
        log = plan.log
    }
}
