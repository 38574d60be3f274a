/// The words after a benchmark's name: `--name value`, each of them known.
struct Flags {
    private var values: [String: String] = [:]

    init(_ words: some Sequence<String>, _ known: Set<String>) throws {
        var words = words.makeIterator()
        while let word = words.next() {
            let name = String(word.dropFirst(2))
            guard word.hasPrefix("--"), known.contains(name) else {
                throw BenchError("flags are \(known.sorted().map { "--\($0)" }.joined(separator: ", ")): see --help")
            }
            guard let value = words.next() else { throw BenchError("--\(name) needs a value") }
            values[name] = value
        }
    }

    subscript(_ name: String) -> String? { values[name] }

    func required(_ name: String) throws -> String {
        guard let value = values[name] else { throw BenchError("--\(name) is missing: see --help") }
        return value
    }

    /// A whole number from 1 on.
    func count(_ name: String, default standard: Int, most: Int = 1_000_000) throws -> Int {
        guard let text = values[name] else { return standard }
        guard let value = Int(text), (1...most).contains(value) else {
            throw BenchError("--\(name) must be a whole number from 1 to \(most)")
        }
        return value
    }

    /// Unix milliseconds, or a span of them.
    func milliseconds(_ name: String) throws -> UInt64? {
        guard let text = values[name] else { return nil }
        guard let value = UInt64(text) else { throw BenchError("--\(name) must be whole milliseconds") }
        return value
    }
}
