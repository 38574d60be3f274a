/// Reads an input as a series of choices; past its end every choice is 0.
struct FuzzInput {
    private var rest: ArraySlice<UInt8>

    init(_ input: [UInt8]) { rest = input[...] }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

    /// A number from 0 to `most`, which is at most 255.
    mutating func number(upTo most: Int) -> Int { Int(byte()) % (most + 1) }

    mutating func bytes(_ count: Int) -> [UInt8] {
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }
}
