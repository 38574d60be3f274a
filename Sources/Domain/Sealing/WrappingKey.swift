public import Linux
import Sodium
import Vocabulary

/// A key that is not on this machine's disk and wraps the key file there. Without it, the file and its old blocks and snapshots are useless.
public struct WrappingKey: Sendable {
    /// Identifies the key in the file's head and for the operator. Reveals nothing about the key.
    public let id: [UInt8]
    let key: Secret

    static let idCount = 16
    /// 32 bytes in base64, and a newline.
    static let largestCount = 45

    /// Reads 32 bytes, or their base64 with an optional newline. Returns nil for anything else and for 32 equal bytes, which are the remains of
    /// a lost file or answer.
    init?(_ text: Span<UInt8>) throws(SealingError) {
        guard let given = try Self.decode(text) else { return nil }
        var isWorthless = true
        given.withBytes { bytes in
            for index in bytes.indices where bytes[index] != bytes[0] { isWorthless = false }
        }
        guard !isWorthless else { return nil }
        key = try given.withBytes { bytes throws(SealingError) in
            var derived: Derivation? = Derivation(bytes, .wrapping)
            return try Secret(count: 32) { derived.take()!.finish(into: &$0) }
        }
        id = given.withBytes { Array(Derivation($0, .wrappingID).digest().bytes.prefix(Self.idCount)) }
    }

    private static func decode(_ text: Span<UInt8>) throws(SealingError) -> Secret? {
        if text.count == 32 { return try Secret(copying: text) }
        let digits = Base64.standard.encodedCount(32)
        guard text.count == digits || text.count == digits + 1 && text[digits] == 0x0a else { return nil }
        var isWhole = false
        // One byte more than expected, since the decoder requires space for everything its input could contain.
        let decoded = try Secret(count: 33) { isWhole = Base64.standard.decode(text.extracting(first: digits), into: &$0) == 32 }
        guard isWhole else { return nil }
        return try decoded.withBytes { bytes throws(SealingError) in try Secret(copying: bytes.extracting(first: 32)) }
    }
}

/// Why the wrapping key could not be read. It never contains the file's content, the program's output or the setting, since the setting may be
/// the key itself by mistake.
public enum WrappingKeyError: Error, Equatable, CustomStringConvertible {
    case missing
    case unreadable(Errno)
    /// It is not a file, or its mode or owner allows others to read or change it. The text follows the file's name.
    case exposed(String)
    case noKey
    case notStarted(Errno)
    case failed(ChildProcess.Exit)
    case tooSlow
    case sealing(SealingError)

    public var description: String {
        switch self {
        case .missing: "the wrapping key's file is missing, and no other is made. Restore it"
        case .unreadable(let errno): "the wrapping key's file can't be read: \(errno.reason)"
        case .exposed(let why):
            "the wrapping key's file \(why). Its owner must be this user or root, and its mode 0600 or less"
        case .noKey: "the file or program doesn't contain a wrapping key. It must be 32 random bytes, or their base64"
        case .notStarted(let errno): "the program for the wrapping key can't be started: \(errno.reason)"
        case .failed(.status(let status)):
            "the program for the wrapping key failed with status \(status). Run it by hand to see why"
        case .failed(.killed(let signal)): "the program for the wrapping key was killed (\(signal))"
        case .tooSlow:
            "the program for the wrapping key did not end within \(WrappingKeySource.deadlineMs / 1_000) s and was killed"
        case .sealing(let error): error.description
        }
    }
}

/// The source of the wrapping key, read once at the start. Mayfly never creates this key.
public enum WrappingKeySource: Sendable, Equatable {
    /// A file, e.g. a systemd credential.
    case file(String)
    /// The standard output of a program, e.g. one that asks a TPM or a key service.
    case command(path: String, arguments: [String])

    static let deadlineMs: UInt64 = 30_000

    /// Reads the key. Blocks for up to 30 s if the source is a command.
    public func read() throws(WrappingKeyError) -> WrappingKey {
        do {
            let memory = try LockedMemory(count: WrappingKey.largestCount + 1)
            let count =
                switch self {
                case .file(let path): try Self.read(path, memory)
                case .command(let path, let arguments): try Self.run(path, arguments, memory)
                }
            guard let key = try memory.withBytes(0..<count, { bytes throws(SealingError) in try WrappingKey(bytes) }) else {
                throw WrappingKeyError.noKey
            }
            return key
        } catch let error as WrappingKeyError {
            throw error
        } catch let error as SealingError {
            throw .sealing(error)
        } catch {
            throw .sealing(.outOf(.cannotLock))
        }
    }

    private static func read(_ path: String, _ memory: LockedMemory) throws(WrappingKeyError) -> Int {
        var exposure: String?
        do throws(Errno) {
            let file = try OpenFile(path, .read)
            exposure = try exposed(file.status())
            guard exposure == nil else { throw Errno(code: 0, call: "fstat") }
            return try memory.withMutableBytes(0..<memory.count) { bytes throws(Errno) in try file.read(into: &bytes, at: 0) }
        } catch {
            if let exposure { throw .exposed(exposure) }
            throw error.isMissing ? .missing : .unreadable(error)
        }
    }

    private static func exposed(_ status: File.Status) -> String? {
        guard status.kind == .file else { return "is not a file" }
        return status.isRootsAlone ? nil : status.exposure
    }

    private static func run(_ path: String, _ arguments: [String], _ memory: LockedMemory) throws(WrappingKeyError) -> Int {
        let outcome: ChildProcess.Outcome
        do throws(Errno) {
            outcome = try memory.withMutableBytes(0..<memory.count) { bytes throws(Errno) in
                try ChildProcess.read(path, arguments: arguments, into: &bytes, deadlineMs: deadlineMs)
            }
        } catch {
            throw .notStarted(error)
        }
        switch outcome {
        case .tooSlow: throw .tooSlow
        case .ended(.status(0), let count): return count
        case .ended(let exit, _): throw .failed(exit)
        }
    }
}
