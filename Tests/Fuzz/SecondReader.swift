@testable import APNsSimulator

/// The simulator's separate JSON parser.
enum SecondReader {
    /// Nil if `bytes` aren't JSON or repeat a name anywhere.
    static func read(_ bytes: [UInt8]) -> SecondValue? { JSON(parsing: bytes).map(SecondValue.init) }
}

indirect enum SecondValue: Equatable {
    case null
    case bool(Bool)
    case number(Double)
    case string(String)
    case array([SecondValue])
    case object([String: SecondValue])

    fileprivate init(_ value: JSON) {
        self =
            switch value {
            case .null: .null
            case .bool(let flag): .bool(flag)
            case .number(let number): .number(number)
            case .string(let text): .string(text)
            case .array(let items): .array(items.map(SecondValue.init))
            case .object(let members): .object(members.mapValues(SecondValue.init))
            }
    }
}
