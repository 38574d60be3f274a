import Linux
import Sodium
import Vocabulary

/// Looks for secrets in the files of a state folder: byte by byte, and without knowing their formats.
struct ByteSearch {
    private struct Needle {
        let bytes: [UInt8]
        let what: String
        /// The day after which nobody looks for it any more.
        let until: UInt64
    }

    /// By the first eight bytes.
    private var needles: [UInt64: [Needle]] = [:]
    /// The low 16 bits of the first eight bytes of each.
    private var filter = [Bool](repeating: false, count: 65_536)
    private var lastKeys: [UInt8] = []
    private(set) var count = 0

    /// Adds bytes that must be in no file, as they are, in hexadecimal digits and in base64url.
    /// - Parameter bytes: at least 12. Of base64url only what begins at a multiple of three is looked for.
    mutating func add(_ bytes: [UInt8], _ what: String, until day: UInt64) {
        add(needle: bytes, what, day)
        add(needle: Array(Hex.encode(bytes.span).utf8), "\(what) in hexadecimal digits", day)
        let whole = Array(bytes.prefix(bytes.count / 3 * 3))
        add(needle: Array(Base64.url.encode(whole.span).utf8), "\(what) in base64url", day)
    }

    private mutating func add(needle bytes: [UInt8], _ what: String, _ day: UInt64) {
        let first = bytes[0..<8].reduce(0) { $0 << 8 | UInt64($1) }
        needles[first, default: []].append(Needle(bytes: bytes, what: what, until: day))
        filter[Int(first & 0xffff)] = true
        count += 1
    }

    /// Forgets what nobody looks for any more.
    mutating func forget(day: UInt64) {
        needles = needles.compactMapValues { list in
            let left = list.filter { $0.until >= day }
            return left.isEmpty ? nil : left
        }
        count = needles.values.reduce(0) { $0 + $1.count }
        filter = [Bool](repeating: false, count: 65_536)
        for first in needles.keys { filter[Int(first & 0xffff)] = true }
    }

    /// Reads the key file. The keys that were in it at the last call and are not any more must be nowhere from now on.
    mutating func compareKeys(_ path: String, day: UInt64) throws {
        let bytes = try File.read(path, limit: 1 << 20)
        let present = Set(stride(from: 0, to: bytes.count - 16, by: 4).map { Array(bytes[$0..<$0 + 16]) })
        for start in stride(from: 0, to: max(16, lastKeys.count) - 16, by: 4) {
            let block = Array(lastKeys[start..<start + 16])
            // Numbers of the file's format are no keys.
            guard Set(block).count > 11, !present.contains(block) else { continue }
            add(needle: block, "a destroyed key", day + 2)
        }
        lastKeys = bytes
    }

    /// Forgets the last keys, e.g. after a new file was made.
    mutating func forgetKeys() { lastKeys = [] }

    /// Returns the first secret that is in these bytes.
    func find(in bytes: [UInt8]) -> String? {
        let span = bytes.span
        var window: UInt64 = 0
        for index in span.indices {
            window = window << 8 | UInt64(span[index])
            guard filter[Int(window & 0xffff)], index >= 7, let candidates = needles[window] else { continue }
            let start = index - 7
            for needle in candidates where bytes.count - start >= needle.bytes.count {
                if bytes[start..<start + needle.bytes.count].elementsEqual(needle.bytes) { return needle.what }
            }
        }
        return nil
    }

    /// Returns the first secret in the files of a folder, and its file.
    /// - Parameter isDeep: true to search the folders in it, too.
    func find(inFolder path: String, isDeep: Bool) throws -> String? {
        for name in try File.list(path).sorted() {
            let inner = "\(path)/\(name)"
            switch try File.status(inner)?.kind {
            case .file?: if let what = find(in: try File.read(inner, limit: 1 << 30)) { return "\(name) has \(what)" }
            case .folder? where isDeep: if let found = try find(inFolder: inner, isDeep: true) { return found }
            default: break
            }
        }
        return nil
    }
}
