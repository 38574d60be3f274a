/// The ways in which a stream may arrive: as one piece, byte by byte, and in pieces that the input itself decides.
enum Splitting: CaseIterable {
    case whole, bytes, pieces

    func split(_ input: [UInt8]) -> [[UInt8]] {
        switch self {
        case .whole: return [input]
        case .bytes: return input.map { [$0] }
        case .pieces:
            var state = input.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
            var pieces: [[UInt8]] = []
            var rest = input[...]
            while !rest.isEmpty {
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                let piece = rest.prefix(1 + Int(state >> 33) % 40)
                pieces.append(Array(piece))
                rest = rest.dropFirst(piece.count)
            }
            return pieces
        }
    }
}

func copy(_ span: Span<UInt8>) -> [UInt8] { span.indices.map { span[$0] } }
