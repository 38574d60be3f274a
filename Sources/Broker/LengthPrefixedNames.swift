// Names in sealed notes.

extension [UInt8] {
    /// Appends a name of at most 255 bytes after its length in one byte.
    mutating func append(name: some Collection<UInt8>) {
        precondition(name.count < 256)
        append(UInt8(name.count))
        append(contentsOf: name)
    }
}

extension ArraySlice<UInt8> {
    /// Removes the first bytes. Returns nil if there are fewer.
    mutating func pop(_ count: Int) -> [UInt8]? {
        guard self.count >= count else { return nil }
        defer { removeFirst(count) }
        return Array(prefix(count))
    }

    /// Removes a name and the length before it. Returns nil if bytes are missing.
    mutating func popName() -> [UInt8]? { popFirst().flatMap { pop(Int($0)) } }
}
