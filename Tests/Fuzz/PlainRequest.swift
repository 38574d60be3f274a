/// One whole request, read a second time in the plainest way and as strictly as RFC 9112 can be read: every line ends in CR LF and
/// stands alone, and the body's length is said once.
struct PlainRequest {
    private(set) var target: [UInt8] = []
    private(set) var headers: [(name: String, value: [UInt8])] = []
    private(set) var body: [UInt8] = []
    private var rest: ArraySlice<UInt8>

    /// - Returns: nil for anything but one request and nothing after it.
    init?(_ raw: [UInt8]) {
        rest = raw[...]
        while rest.starts(with: [0x0D, 0x0A]) { rest = rest.dropFirst(2) }
        guard let words = line()?.split(separator: 0x20, omittingEmptySubsequences: false), words.count == 3,
            !words[0].isEmpty, words[0].allSatisfy(Self.isToken),
            !words[1].isEmpty, words[1].allSatisfy({ (0x21...0x7E).contains($0) && $0 != 0x23 }),
            words[2].elementsEqual("HTTP/1.1".utf8) || words[2].elementsEqual("HTTP/1.0".utf8)
        else { return nil }
        target = Array(words[1])
        while let line = line() {
            if line.isEmpty { break }
            guard let header = Self.header(line) else { return nil }
            headers.append(header)
        }
        let hosts = values("host").count
        guard hosts == 1 || (hosts == 0 && words[2].last == 0x30), readBody(isVersion11: words[2].last == 0x31), rest.isEmpty
        else {
            return nil
        }
    }

    func values(_ name: String) -> [[UInt8]] { headers.filter { $0.name == name }.map(\.value) }

    private mutating func line() -> ArraySlice<UInt8>? {
        guard let feed = rest.firstIndex(of: 0x0A), feed > rest.startIndex, rest[feed - 1] == 0x0D else { return nil }
        let line = rest[rest.startIndex..<feed - 1]
        guard !line.contains(0x0D) else { return nil }
        rest = rest[(feed + 1)...]
        return line
    }

    /// A header line: a token, a colon, a value of visible characters, spaces and bytes above ASCII.
    private static func header(_ line: ArraySlice<UInt8>) -> (name: String, value: [UInt8])? {
        guard let colon = line.firstIndex(of: 0x3A) else { return nil }
        let name = line[..<colon]
        var value = line[(colon + 1)...]
        guard !name.isEmpty, name.allSatisfy(isToken), value.allSatisfy({ $0 == 0x09 || ($0 >= 0x20 && $0 != 0x7F) }) else {
            return nil
        }
        while let first = value.first, first == 0x20 || first == 0x09 { value = value.dropFirst() }
        while let last = value.last, last == 0x20 || last == 0x09 { value = value.dropLast() }
        return (String(decoding: name, as: UTF8.self).lowercased(), Array(value))
    }

    private static func isToken(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }

    private mutating func readBody(isVersion11: Bool) -> Bool {
        let lengths = values("content-length")
        let codings = values("transfer-encoding")
        guard lengths.count + codings.count <= 1 else { return false }
        if let coding = codings.first {
            return isVersion11 && String(decoding: coding, as: UTF8.self).lowercased() == "chunked" && readChunks()
        }
        guard let digits = lengths.first else { return true }
        guard !digits.isEmpty, digits.allSatisfy({ (0x30...0x39).contains($0) }),
            let length = Int(String(decoding: digits, as: UTF8.self)), length <= rest.count
        else { return false }
        take(length)
        return true
    }

    private mutating func take(_ count: Int) {
        body += rest.prefix(count)
        rest = rest.dropFirst(count)
    }

    private mutating func readChunks() -> Bool {
        while let line = line() {
            let digits = line.prefix { $0 != 0x3B }
            guard !digits.isEmpty, digits.allSatisfy({ (0x30...0x39).contains($0) || (0x41...0x46).contains($0 & 0xDF) }),
                let size = Int(String(decoding: digits, as: UTF8.self), radix: 16), size <= rest.count
            else { return false }
            if size == 0 { return readTrailers() }
            take(size)
            guard rest.starts(with: [0x0D, 0x0A]) else { return false }
            rest = rest.dropFirst(2)
        }
        return false
    }

    private mutating func readTrailers() -> Bool {
        while let line = line() {
            if line.isEmpty { return true }
            guard Self.header(line) != nil else { return false }
        }
        return false
    }
}
