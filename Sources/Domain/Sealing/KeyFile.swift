import Linux
import Sodium

/// Why a key file could not be created, read or replaced.
public enum KeyFileError: Error, Equatable, CustomStringConvertible {
    case missing
    case alreadyExists
    case notAFile
    /// Others than the owner may read or write the file. Has its permission bits.
    case looseMode(UInt32)
    case wrongOwner(UInt32)
    case truncated
    case notAKeyFile
    case unknownVersion(UInt32)
    case corrupt
    /// The file is wrapped, but no wrapping key was given.
    case wrapped
    /// A wrapping key was given, but the file isn't wrapped.
    case notWrapped
    /// The file is wrapped with another key.
    case otherWrappingKey
    /// The given time differs from the file's by more than any absence of a broker.
    case implausibleTime
    case cannotLock
    /// Another node has different keys under the same names.
    case otherKeys
    case system(Errno)

    public var description: String {
        switch self {
        case .missing:
            "the key file is missing. `mayfly keys init` makes the keys of an empty state folder, `mayfly keys renew` replaces a lost one"
        case .alreadyExists:
            "the key file exists, and a new one would make all tokens unreadable. Remove it first if you want that"
        case .notAFile: "the key file is not a regular file. Links and devices are refused"
        case .looseMode(let mode): "the key file has mode 0\(String(mode, radix: 8)), so others could read it. Set it to 0600"
        case .wrongOwner(let owner): "the key file belongs to user \(owner), not to the present user. Run this as that user"
        case .truncated: "the key file is truncated. Everything sealed with it is lost unless you have the whole file"
        case .notAKeyFile: "the file is not a ratchet key: it was overwritten or is another file"
        case .unknownVersion(let version): "the key file has version \(version), which a newer Mayfly wrote. Upgrade"
        case .corrupt: "the key file was changed or damaged: its checksum or its numbers are invalid"
        case .wrapped: "the key file is wrapped. Set --wrapping-key (MAYFLY_WRAPPING_KEY) to the key it was made with"
        case .notWrapped:
            "a wrapping key is set, but the key file is not wrapped. Remove the setting, or start with an empty state folder, since the disk may keep the unwrapped file"
        case .otherWrappingKey: "the key file is wrapped under another key. Use the one it was made with"
        case .implausibleTime: "the clock differs by decades from the key file's time. Set the clock"
        case .otherKeys: "another node has different keys under the same names. This one must fetch all of them again"
        case .cannotLock: "the system can't lock memory for keys. Raise the limit (ulimit -l, LimitMEMLOCK=)"
        case .system(let errno): "the key file could not be read or written: \(errno)"
        }
    }
}

/// `keys/ratchet.key` on disk, and the spare file beside it for the next step. Calls block.
struct KeyFile: Sendable {
    let path: String
    private let wrapping: WrappingKey?
    private var twin: TwinFile { TwinFile(path) }

    /// - Parameter wrapping: the key that wraps the file. Nil for an unwrapped file.
    init(path: String, wrapping: WrappingKey? = nil) {
        self.path = path
        self.wrapping = wrapping
    }

    /// Writes the first image.
    /// - Throws: `.alreadyExists` if a file exists.
    func create(_ image: KeyImage) throws(KeyFileError) {
        try write(image) { bytes throws(Errno) in try twin.create(bytes) }
    }

    private func write(_ image: KeyImage, _ body: (Span<UInt8>) throws(Errno) -> Void) throws(KeyFileError) {
        try system { () throws(Errno) in
            if let wrapping {
                let wrapped = WrappedImage.seal(image, under: wrapping)
                try body(wrapped.span)
            } else {
                try image.withBytes(body)
            }
        }
    }

    func read() throws(KeyFileError) -> KeyImage {
        guard let entry = try system({ () throws(Errno) in try File.status(path, followLinks: false) }) else { throw .missing }
        guard entry.kind == .file else { throw .notAFile }

        let memory: LockedMemory
        do throws(LockedMemory.Unavailable) {
            memory = try LockedMemory(count: KeyImage.largestCount + WrappedImage.overhead + 1)
        } catch {
            throw .cannotLock
        }
        let (status, count) = try system { () throws(Errno) in
            let file = try OpenFile(path, .read)
            let count = try memory.withMutableBytes(0..<memory.count) { bytes throws(Errno) in try file.read(into: &bytes, at: 0)
            }
            return (try file.status(), count)
        }
        guard status.kind == .file else { throw .notAFile }
        guard status.mode & 0o077 == 0 else { throw .looseMode(status.mode) }
        guard status.isPrivate else { throw .wrongOwner(status.owner) }
        let isWrapped = memory.withBytes(0..<count) { WrappedImage.isOne($0) }
        guard let wrapping else {
            guard !isWrapped else { throw .wrapped }
            return try KeyImage(checking: memory, count: count)
        }
        if isWrapped {
            return try memory.withBytes(0..<count) { bytes throws(KeyFileError) in try WrappedImage.open(bytes, with: wrapping) }
        }
        // Report anything but a key file as such.
        _ = try KeyImage(checking: memory, count: count)
        throw .notWrapped
    }

    /// Zeroes old keys that a crash left in the spare file. Creates a missing spare file if there is disk space.
    func prepareSpare() throws(KeyFileError) {
        try system { () throws(Errno) in
            do throws(Errno) {
                try twin.prepare()
            } catch {
                guard error.isOutOfSpace else { throw error }
            }
        }
    }

    /// Durably replaces the file and zeroes the old bytes. After a crash, the file is completely old or new. It needs disk space only if a new
    /// generation makes the file one block longer.
    func replace(_ image: KeyImage) throws(KeyFileError) {
        try write(image) { bytes throws(Errno) in try twin.replace(bytes) }
    }

    /// Zeroes and removes the file and its spare.
    func destroy() throws(KeyFileError) { try system { () throws(Errno) in try twin.destroy() } }

    private func system<Result>(_ body: () throws(Errno) -> Result) throws(KeyFileError) -> Result {
        do throws(Errno) {
            return try body()
        } catch {
            if error.isExisting { throw .alreadyExists }
            throw .system(error)
        }
    }
}
