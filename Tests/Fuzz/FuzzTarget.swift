import HTTP2
import Linux

/// A fuzzed parser and its properties. The variable `FUZZ_TARGET` selects one; `scripts/fuzz` runs all.
enum FuzzTarget: String, CaseIterable, Sendable {
    case request, response, websocket, http2server, http2client, http2pair, tls, json, jwt, message, endpoint, ledger, policy

    /// Parses `input`. A violated property ends the process.
    func run(_ input: [UInt8]) {
        switch self {
        case .request: RequestFuzz.run(input)
        case .response: ResponseFuzz.run(input)
        case .websocket: WebSocketFuzz.run(input)
        case .http2server: HTTP2Fuzz.run(input, as: .server)
        case .http2client: HTTP2Fuzz.run(input, as: .client)
        case .http2pair: HTTP2PairFuzz.run(input)
        case .tls: TLSFuzz.run(input)
        case .json: JSONFuzz.run(input)
        case .jwt: TokenFuzz.run(input)
        case .message: MessageFuzz.run(input)
        case .endpoint: EndpointFuzz.run(input)
        case .ledger: LedgerFuzz.run(input)
        case .policy: PolicyFuzz.run(input)
        }
    }

    static let chosen: FuzzTarget = {
        let name = Environment.all.first { $0.name == "FUZZ_TARGET" }?.value ?? ""
        guard let target = FuzzTarget(rawValue: name) else {
            fatalError("FUZZ_TARGET is \"\(name)\"; it names one of: \(allCases.map(\.rawValue).joined(separator: ", "))")
        }
        return target
    }()
}

/// Ends the process if `holds` is false, so that libFuzzer keeps the input.
func require(_ holds: Bool, _ property: @autoclosure () -> String, file: StaticString = #fileID, line: UInt = #line) {
    if !holds { fatalError(property(), file: file, line: line) }
}

/// Reads an input as a series of choices. Past its end every choice is 0.
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

/// How a stream is split: not at all, byte by byte, or into pieces that depend on the input.
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
