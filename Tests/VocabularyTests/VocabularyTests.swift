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

    private func ref(_ digits: String) -> Ref? {
        let digits = Array(digits.utf8)
        return Ref(hex: digits.span)
    }

    @Test func refsAreSixteenBytesInHex() throws {
        let one = try #require(ref("00112233445566778899aabbccddeeff"))
        #expect(one.bytes == [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff])
        #expect("\(one)" == "00112233445566778899aabbccddeeff")
        let (whole, short) = (Ref(bytes: one.bytes.span), Ref(bytes: [1, 2].span))
        #expect(whole == one && short == nil)
        #expect(ref("00112233445566778899AABBCCDDEEFF") == nil)
        #expect(ref("00112233445566778899aabbccddee") == nil)
        #expect(ref("00112233445566778899aabbccddeeff00") == nil)
        #expect(Ref.random() != Ref.random())
        let earlier = try #require(ref("00100000000000000000000000000000"))
        #expect(earlier < one)
    }

    @Test func idsAreReadInEachForm() throws {
        let id = RegistrationID(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)
        #expect(id.bytes == Array(0..<16) && id.withBytes { RegistrationID(bytes: $0) } == id && RegistrationID(id.value) == id)
        #expect(id.base64url == "AAECAwQFBgcICQoLDA0ODw" && RegistrationID(base64url: "AAECAwQFBgcICQoLDA0ODw") == id)
        for bad in ["", "AAECAwQFBgcICQoLDA0OD", "AAECAwQFBgcICQoLDA0ODx", "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0OD+"] {
            #expect(RegistrationID(base64url: bad[...]) == nil, "\(bad)")
        }
    }
}
