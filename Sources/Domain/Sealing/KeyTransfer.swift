import Sodium
import Synchronization
import Vocabulary

/// Receives the keys of another node, which seals them for this one. They exist only in locked memory.
public final class KeyReceiver: Sendable {
    private let pair: X25519Box.KeyPair
    /// 32 bytes, for the sender.
    public var publicKey: [UInt8] { pair.publicKey }

    public init() throws(KeyFileError) {
        do throws(LockedMemory.Unavailable) { pair = try X25519Box.KeyPair() } catch { throw .cannotLock }
    }

    /// Opens what `KeyRing.sealed(for:)` returned.
    /// - Throws: `.corrupt` if it was sealed for another receiver or changed.
    public func open(_ sealed: [UInt8]) throws(KeyFileError) -> ReceivedKeys {
        let count = sealed.count - X25519Box.overhead
        guard (1...KeyImage.largestCount).contains(count) else { throw .truncated }
        let memory: LockedMemory
        do throws(LockedMemory.Unavailable) { memory = try LockedMemory(count: KeyImage.largestCount + 1) } catch {
            throw .cannotLock
        }
        let isGenuine = memory.withMutableBytes(0..<count) { pair.open(sealed.span, into: &$0) }
        Sodium.wipeStack()
        guard isGenuine else { throw .corrupt }
        return ReceivedKeys(image: try KeyImage(checking: memory, count: count))
    }
}

/// Another node's keys, as they were at one of its steps. They are wiped with this object.
public struct ReceivedKeys: Sendable {
    let image: KeyImage

    /// See `KeyRing.steps`.
    public var steps: UInt64 { image.steps }
    /// The generation of new seals.
    public var currentGeneration: UInt32 { image.entry(image.generations - 1).id }
}

/// Keys for other nodes. `edition` changes with the keys and tells nothing about them.
public struct SealedKeys: Sendable {
    public let edition: UInt64
    public let steps: UInt64
    /// Only the receiver can open it.
    public let box: [UInt8]

    public init(edition: UInt64, steps: UInt64, box: [UInt8]) { (self.edition, self.steps, self.box) = (edition, steps, box) }
}

extension KeyRing {
    /// Makes keys that exist only in this process.
    /// - Parameter nowMs: unix ms.
    public static func make(nowMs: UInt64, longestLifeSeconds: UInt64) throws(KeyFileError) -> KeyRing {
        try KeyRing(file: nil, image: KeyImage.random(nowMs: nowMs), longestLifeSeconds: longestLifeSeconds)
    }

    /// Zeroes and removes the key file at `path`. From then on these keys are in memory only.
    public func destroyFile(_ path: String) throws(KeyFileError) {
        try file.withLock { file throws(KeyFileError) in
            try KeyFile(path: path).destroy()
            file = nil
        }
    }

    /// Creates a ring from another node's keys.
    /// - Parameters:
    ///   - path: a key file, which is replaced. Nil keeps the keys in memory only.
    ///   - wrapping: the key that wraps that file.
    public convenience init(
        _ received: ReceivedKeys, path: String? = nil, wrapping: WrappingKey? = nil, longestLifeSeconds: UInt64
    ) throws(KeyFileError) {
        let file = path.map { KeyFile(path: $0, wrapping: wrapping) }
        try file?.replace(received.image)
        try self.init(file: file, image: received.image, longestLifeSeconds: longestLifeSeconds)
    }

    /// Returns the latest keys, sealed for a `KeyReceiver`: those of the step under way, otherwise those in use.
    /// - Returns: nil if the receiver's key is malformed, or if no memory can be locked.
    public func sealed(for publicKey: [UInt8]) -> SealedKeys? {
        guard publicKey.count == X25519Box.publicKeyCount else { return nil }
        return editions.withLock { editions in
            guard let image = editions.offered ?? image(), let box = image.sealed(for: publicKey.span) else { return nil }
            Sodium.wipeStack()
            return SealedKeys(edition: editions.number, steps: image.steps, box: box)
        }
    }

    /// Changes when other nodes should ask for the keys again.
    public var edition: UInt64 { editions.withLock { $0.number } }

    /// Calls `body` whenever `edition` has changed, on the thread that changed it.
    public func onNewEdition(_ body: @escaping @Sendable () -> Void) { editions.withLock { $0.changed = body } }

    /// Gives the keys that other nodes may fetch a new number.
    func renumber(_ change: (inout KeyImage?) -> Void = { _ in }) {
        let changed = editions.withLock { editions in
            change(&editions.offered)
            editions.number = .random(in: 1 ... .max)
            return editions.changed
        }
        changed?()
    }

    /// Follows a step of another node. A new generation opens rows at once. It takes no seals until `sealWithNewest`, since other nodes may get it later.
    /// - Returns: true if a generation waits for `sealWithNewest`.
    /// - Throws: `.otherKeys` if a generation in use has other keys at that node.
    public func follow(_ received: ReceivedKeys) throws(KeyFileError) -> Bool {
        let waits = try file.withLock { file throws(KeyFileError) in
            let waits = try ratchet.withLock { ratchet throws(KeyFileError) in try ratchet.follow(received.image) }
            try file?.replace(received.image)
            return waits
        }
        renumber()
        return waits
    }

    /// Makes this ring that of a node whose steps another node makes. Nobody may have used the newest generation yet, so it takes no seals until
    /// `sealWithNewest`.
    public func beginFollowing() { ratchet.withLock { $0.beginFollowing() } }

    /// From now on the newest generation takes all seals.
    public func sealWithNewest() { ratchet.withLock { $0.sealWithNewest() } }
}

/// A step that other nodes may have already, and this one has not done yet.
public struct OfferedStep: Sendable {
    let image: KeyImage
    let born: Generation?
    /// The base epoch before the step.
    let before: Epoch
}

/// What other nodes may fetch.
struct KeyEditions: Sendable {
    var number = UInt64.random(in: 1 ... .max)
    /// The keys after a step that is not done yet.
    var offered: KeyImage?
    var changed: (@Sendable () -> Void)?
}

extension KeyImage {
    fileprivate func sealed(for publicKey: Span<UInt8>) -> [UInt8]? {
        var box: [UInt8]?
        withBytes { box = X25519Box.seal($0, for: publicKey) }
        return box
    }
}
