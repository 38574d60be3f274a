import Testing
import Vocabulary

@Suite struct VocabularyTests {
    /// Rows and seals hold these numbers.
    @Test func numbersStay() {
        #expect(TokenKind.allCases.map(\.rawValue) == [1, 2, 3])
        #expect(PushEnvironment.allCases.map(\.rawValue) == [1, 2])
    }
}
