import Testing
import Vocabulary

@Suite struct VocabularyTests {
    /// Rows and seals hold these numbers.
    @Test func numbersStay() {
        #expect(TokenKind.allCases.map(\.rawValue) == [1, 2, 3])
        #expect(PushEnvironment.allCases.map(\.rawValue) == [1, 2])
    }

    @Test func theLedgerSaysLessThanTheCourier() {
        let own: Set<APNsReason> = [.late, .stopped, .revoked, .notConfigured]
        #expect(
            own.isDisjoint(with: APNsReason.allRecorded) && own.count + APNsReason.allRecorded.count == APNsReason.allCases.count)
        #expect(own.allSatisfy { APNsReason.allRecorded.contains($0.recorded) })
        #expect(APNsReason.allRecorded.allSatisfy { $0.status != nil || [.unreachable, .unknown, .other, .unsent].contains($0) })
    }
}
