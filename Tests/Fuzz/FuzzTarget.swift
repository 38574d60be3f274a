import HTTP2
import Linux

/// A reader of hostile bytes and what must hold of it, whatever the bytes are. Chosen by the variable `FUZZ_TARGET`; `scripts/fuzz` runs them.
enum FuzzTarget: String, CaseIterable, Sendable {
    case request, response, websocket, http2server, http2client, http2pair, tls, json, jwt, message, ledger, policy

    /// Reads `input`; a property that does not hold ends the process.
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

/// Ends the process, so that libFuzzer keeps the input, where `holds` is false.
func require(_ holds: Bool, _ property: @autoclosure () -> String, file: StaticString = #fileID, line: UInt = #line) {
    if !holds { fatalError(property(), file: file, line: line) }
}
