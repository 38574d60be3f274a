/// The words of a type that the broker sends as text.
///
/// Such a type has a case for words of a later broker, so that they break no app.
struct Words<Value: RawRepresentable>: Sendable where Value: Sendable, Value.RawValue == String {
    private let values: [String: Value]

    init(_ values: [Value]) { self.values = Dictionary(uniqueKeysWithValues: values.map { ($0.rawValue, $0) }) }

    subscript(word: String) -> Value? { values[word] }
}
