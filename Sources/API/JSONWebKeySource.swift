import Linux
import Sealing
import Sodium

/// The file with the keys by which JWTs are verified.
public enum JSONWebKeySource: Sendable, Equatable {
    /// One key: a secret's bytes, or a public key in PEM.
    case key(path: String)
    /// A JWK set (RFC 7517).
    case keySet(path: String)

    static let largestFile = 65_536

    var path: String {
        switch self {
        case .key(let path), .keySet(let path): path
        }
    }

    /// Reads the file; what it holds passes through locked memory only.
    func load(for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) -> JSONWebKeySet {
        try Self.read(path, isSecret: algorithm == .hs256) { bytes throws(JSONWebKeyError) in
            do throws(JSONWebKeyError) {
                switch self {
                case .key: return JSONWebKeySet(try JSONWebKey(file: bytes, for: algorithm))
                case .keySet: return try JSONWebKeySet(bytes, for: algorithm)
                }
            } catch { throw .file(path: path, error) }
        }
    }

    /// - Parameter isSecret: nobody else may read the file.
    static func read<Value>(
        _ path: String, isSecret: Bool, _ use: (Span<UInt8>) throws(JSONWebKeyError) -> Value
    ) throws(JSONWebKeyError) -> Value {
        let memory: LockedMemory
        do {
            memory = try LockedMemory(count: largestFile + 1)
        } catch { throw .memory(.outOf(.cannotLock)) }
        let status: File.Status
        let count: Int
        do throws(Errno) {
            let file = try OpenFile(path, .read)
            status = try file.status()
            count = try memory.withMutableBytes(0..<memory.count) { bytes throws(Errno) in try file.read(into: &bytes, at: 0) }
        } catch { throw .unreadable(path: path, why: error.reason) }
        guard !isSecret || status.kind == .file && (status.isPrivate || status.isRootsAlone) else {
            throw .exposed(path: path, mode: status.mode)
        }
        guard count <= largestFile else { throw .tooLarge(path: path, limit: largestFile) }
        return try memory.withBytes(0..<count, use)
    }
}
