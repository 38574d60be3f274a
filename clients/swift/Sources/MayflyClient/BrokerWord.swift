/// A word of the broker, such as a state. The raw value is its text. Two are equal if their texts are.
///
/// Each type has a case for words of a later broker, so that these break no app.
public protocol BrokerWord: RawRepresentable, Hashable, Sendable, Codable where RawValue == String {}

/// The words that this version of the client knows.
struct Words<Word: BrokerWord>: Sendable {
    private let words: [String: Word]

    init(_ words: [Word]) { self.words = Dictionary(uniqueKeysWithValues: words.map { ($0.rawValue, $0) }) }

    subscript(text: String) -> Word? { words[text] }
}
