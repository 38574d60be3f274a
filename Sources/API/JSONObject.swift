/// One JSON object (RFC 8259), checked whole and strictly, read member by member from the request's own bytes.
///
/// It holds ranges, and is handed the body again by each read, so that a secret goes from the request's own bytes into a `Secret`
/// and nowhere else. Refused: anything but one object, invalid UTF-8, duplicate names, trailing bytes, nesting beyond 16.
struct JSONObject {
    enum Kind: Equatable { case string, number, bool, null, array, object }

    struct Member {
        let name: [UInt8]
        let kind: Kind
        /// The value's bytes; for a string without its quotes.
        let range: Range<Int>
    }

    /// An item of an array: a member without its name.
    struct Item {
        let kind: Kind
        let range: Range<Int>
    }

    /// Why a member can't be used.
    enum Failure: Error, Equatable { case wrongType, outOfRange }

    private let members: [Member]

    /// - Returns: nil for what is not one well-formed object.
    init?(_ body: Span<UInt8>) {
        var scanner = JSONScanner()
        guard JSONScanner.isUTF8(body), let members = scanner.topLevelObject(body) else { return nil }
        // Each name once. Nobody may have thousands of them compared each with each.
        guard members.count <= 16 ? Self.areDistinct(members[...]) : Set(members.map(\.name)).count == members.count else {
            return nil
        }
        self.members = members
    }

    private static func areDistinct(_ members: ArraySlice<Member>) -> Bool {
        members.indices.allSatisfy { index in !members[..<index].contains { $0.name == members[index].name } }
    }

    /// Whether there is a member of that name, be it null.
    func has(_ name: StaticString) -> Bool { members.contains { $0.name.elementsEqual(name.description.utf8) } }

    var names: [[UInt8]] { members.map(\.name) }

    /// The member, unless it is absent or null.
    private func member(_ name: StaticString) -> Member? {
        // Lengths first: few names share one.
        members.first {
            $0.name.count == name.utf8CodeUnitCount && $0.kind != .null && $0.name.elementsEqual(name.description.utf8)
        }
    }

    private func member(named name: String) -> Member? {
        members.first { $0.kind != .null && $0.name.elementsEqual(name.utf8) }
    }

    /// A string's bytes, escapes decoded.
    func bytes(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> [UInt8]? {
        try Self.bytes(member(name), in: body)
    }

    /// A string of a name that the configuration chooses.
    func bytes(named name: String, in body: Span<UInt8>) throws(Failure) -> [UInt8]? {
        try Self.bytes(member(named: name), in: body)
    }

    private static func bytes(_ member: Member?, in body: Span<UInt8>) throws(Failure) -> [UInt8]? {
        guard let member else { return nil }
        guard member.kind == .string else { throw .wrongType }
        guard let decoded = JSONScanner.decode(body.extracting(member.range)) else { throw .outOfRange }
        return decoded
    }

    /// A whole number; a fraction, an exponent or a string is of the wrong type.
    func integer(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> Int? {
        try Self.integer(member(name), in: body)
    }

    /// A whole number of a name that the configuration chooses.
    func integer(named name: String, in body: Span<UInt8>) throws(Failure) -> Int? {
        try Self.integer(member(named: name), in: body)
    }

    private static func integer(_ member: Member?, in body: Span<UInt8>) throws(Failure) -> Int? {
        guard let member else { return nil }
        guard member.kind == .number else { throw .wrongType }
        var value = 0
        let negative = body[member.range.lowerBound] == UInt8(ascii: "-")
        for index in member.range.dropFirst(negative ? 1 : 0) {
            let digit = body[index]
            guard (0x30...0x39).contains(digit) else { throw .wrongType }
            let (shifted, over) = value.multipliedReportingOverflow(by: 10)
            let (sum, overToo) = shifted.addingReportingOverflow(Int(digit) - 0x30)
            if over || overToo { throw .outOfRange }
            value = sum
        }
        return negative ? -value : value
    }

    /// A number, fraction and exponent included; the nearest that 64 bits have.
    func number(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> Double? {
        guard let member = member(name) else { return nil }
        guard member.kind == .number else { throw .wrongType }
        // What JSON calls a number Swift does too.
        guard let value = Double(String(decoding: member.range.map { body[$0] }, as: UTF8.self)) else { throw .outOfRange }
        return value
    }

    func bool(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> Bool? {
        guard let member = member(name) else { return nil }
        guard member.kind == .bool else { throw .wrongType }
        return body[member.range.lowerBound] == UInt8(ascii: "t")
    }

    /// Where the bytes of a string lie that needs no decoding.
    /// - Throws: `.outOfRange` when the string has escapes: no token or capability has any.
    func plainString(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> Range<Int>? {
        guard let member = member(name) else { return nil }
        guard member.kind == .string else { throw .wrongType }
        guard !member.range.contains(where: { body[$0] == UInt8(ascii: "\\") }) else { throw .outOfRange }
        return member.range
    }

    /// Where an object lies, to be read as one of its own.
    func object(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> Range<Int>? {
        guard let member = member(name) else { return nil }
        guard member.kind == .object else { throw .wrongType }
        return member.range
    }

    /// An array's items, whose ranges count from the start of `body`.
    func items(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> [Item]? {
        guard let member = member(name) else { return nil }
        var scanner = JSONScanner()
        guard member.kind == .array, let items = scanner.topLevelArray(body.extracting(member.range)) else { throw .wrongType }
        let start = member.range.lowerBound
        return items.map { Item(kind: $0.kind, range: $0.range.lowerBound + start..<$0.range.upperBound + start) }
    }

    /// A string, or the strings of an array of nothing else; escapes decoded.
    func texts(_ name: StaticString, in body: Span<UInt8>) throws(Failure) -> [[UInt8]]? {
        guard let member = member(name) else { return nil }
        if member.kind == .string { return try bytes(name, in: body).map { [$0] } }
        guard let items = try items(name, in: body) else { return nil }
        var texts: [[UInt8]] = []
        for item in items {
            guard item.kind == .string, let text = JSONScanner.decode(body.extracting(item.range)) else { throw .wrongType }
            texts.append(text)
        }
        return texts
    }
}
