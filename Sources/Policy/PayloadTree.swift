import JSON

/// A payload while it is being put together: constants, and the places that pushes fill.
indirect enum PayloadTree {
    case object([String: PayloadTree])
    case constant(JSONValue)
    case handle
    /// A field's own JSON value.
    case field(Int)
    /// Text with enum and number fields in it.
    case text([TextPart])
    /// Unix seconds, so many after the event.
    case time(afterSeconds: Int)

    /// Objects become branches, so that fields can stand beside constants; everything else is a leaf.
    init(_ value: JSONValue) {
        if case .object(let members) = value {
            self = .object(Dictionary(members.map { ($0.key, PayloadTree($0.value)) }, uniquingKeysWith: { first, _ in first }))
        } else {
            self = .constant(value)
        }
    }

    /// Puts `leaf` at `path`; false when something stands there already.
    mutating func insert(_ leaf: PayloadTree, at path: ArraySlice<String>) -> Bool {
        guard case .object(var members) = self, let key = path.first else { return false }
        if path.count == 1 {
            guard members[key] == nil else { return false }
            members[key] = leaf
        } else {
            var branch = members[key] ?? .object([:])
            guard branch.insert(leaf, at: path.dropFirst()) else { return false }
            members[key] = branch
        }
        self = .object(members)
        return true
    }

    /// Cuts the canonical JSON of the tree into pieces.
    func pieces(fields: [Field]) -> [Piece] {
        var compiler = PieceCompiler(fields: fields)
        compiler.append(self)
        return compiler.finish()
    }
}

/// A part of a template's text.
enum TextPart: Equatable {
    case words(String)
    case field(Int)
}

private struct PieceCompiler {
    let fields: [Field]
    var pieces: [Piece] = []
    var bytes: [UInt8] = []

    init(fields: [Field]) { self.fields = fields }

    mutating func append(_ tree: PayloadTree) {
        switch tree {
        case .constant(let value): value.append(to: &bytes)
        case .time(let seconds): cut(.time(afterSeconds: seconds))
        case .handle: quoted { $0.cut(.handle) }
        case .field(let index):
            if fields[index].kind == .handle {
                quoted { $0.cut(.field(index: index, words: [])) }
            } else {
                cut(.field(index: index, words: words(of: index, write: JSONString.append)))
            }
        case .text(let parts):
            quoted { compiler in
                for part in parts {
                    switch part {
                    case .words(let words): JSONString.appendContents(words, to: &compiler.bytes)
                    case .field(let index):
                        compiler.cut(.field(index: index, words: compiler.words(of: index, write: JSONString.appendContents)))
                    }
                }
            }
        case .object(let members):
            bytes.append(UInt8(ascii: "{"))
            for (index, key) in members.keys.sorted(by: JSONValue.precedes).enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                JSONString.append(key, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                if let member = members[key] { append(member) }
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }

    mutating func cut(_ piece: Piece) {
        if !bytes.isEmpty { pieces.append(.bytes(bytes)) }
        bytes = []
        pieces.append(piece)
    }

    mutating func quoted(_ inside: (inout Self) -> Void) {
        bytes.append(UInt8(ascii: "\""))
        inside(&self)
        bytes.append(UInt8(ascii: "\""))
    }

    func words(of index: Int, write: (String, inout [UInt8]) -> Void) -> [[UInt8]] {
        guard case .oneOf(let words) = fields[index].kind else { return [] }
        return words.map { word in
            var bytes: [UInt8] = []
            write(word, &bytes)
            return bytes
        }
    }

    mutating func finish() -> [Piece] {
        if !bytes.isEmpty { pieces.append(.bytes(bytes)) }
        return pieces
    }
}

extension Piece {
    /// The most bytes this piece can add to a payload.
    func worstCase(fields: [Field]) -> Int {
        switch self {
        case .bytes(let bytes): return bytes.count
        case .handle: return handleCharacters
        case .time: return 10
        case .field(let index, let words):
            switch fields[index].kind {
            case .handle: return handleCharacters
            case .oneOf: return words.map(\.count).max() ?? 0
            case .number(let range, _): return max(String(range.lowerBound).utf8.count, String(range.upperBound).utf8.count)
            case .flag: return 5
            }
        }
    }
}
