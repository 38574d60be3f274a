import Testing
import Vocabulary

@Suite struct VocabularyTests {
    /// Rows and seals contain these numbers.
    @Test func rawValuesAreStable() {
        #expect(TokenKind.allCases.map(\.rawValue) == [1, 2, 3])
        #expect(PushEnvironment.allCases.map(\.rawValue) == [1, 2])
    }

    @Test func theLedgerRecordsFewerReasons() {
        let own: Set<PushReason> = [.late, .stopped, .revoked, .notConfigured]
        #expect(
            own.isDisjoint(with: PushReason.allRecorded) && own.count + PushReason.allRecorded.count == PushReason.allCases.count)
        #expect(own.allSatisfy { PushReason.allRecorded.contains($0.recorded) })
        #expect(PushReason.allRecorded.allSatisfy { $0.status != nil || [.unreachable, .unknown, .other, .unsent].contains($0) })
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

    @Test func idsParseInEachForm() throws {
        let id = RegistrationID(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)
        #expect(id.bytes == Array(0..<16) && id.withBytes { RegistrationID(bytes: $0) } == id && RegistrationID(id.value) == id)
        #expect(id.base64url == "AAECAwQFBgcICQoLDA0ODw" && RegistrationID(base64url: "AAECAwQFBgcICQoLDA0ODw") == id)
        for bad in ["", "AAECAwQFBgcICQoLDA0OD", "AAECAwQFBgcICQoLDA0ODx", "AAECAwQFBgcICQoLDA0ODw==", "AAECAwQFBgcICQoLDA0OD+"] {
            #expect(RegistrationID(base64url: bad[...]) == nil, "\(bad)")
        }
    }
}

// `#expect` can't capture a span.
private func encode(_ bytes: [UInt8]) -> String { Hex.encode(bytes.span) }
private func decode(_ text: [UInt8]) -> [UInt8]? {
    var bytes = [UInt8](repeating: 0, count: text.count / 2)
    var span = bytes.mutableSpan
    return Hex.decode(text.span, into: &span) ? bytes : nil
}
private func number(_ text: String, at start: Int = 0) -> UInt64? {
    let text = Array(text.utf8)
    return Hex.number(text.span, at: start)
}

@Suite struct HexTests {
    @Test func vectors() {
        #expect(encode([]) == "")
        #expect(encode([0x00, 0x9f, 0xa0, 0xff]) == "009fa0ff")
        #expect(Hex.decode("009fA0fF") == [0x00, 0x9f, 0xa0, 0xff])
        #expect(Hex.decode("") == [])
        for wrong in ["0", "0g", "0 ", " 00", "00\n", "0x00", "00:00", "é0", "/0", ":0", "@0", "`0"] {
            #expect(Hex.decode(wrong) == nil, "\(wrong)")
        }
    }

    @Test func classifiesEveryByte() {
        let digits = Array("0123456789abcdef".utf8)
        for character in UInt8.min...UInt8.max {
            let lower = (0x41...0x5a).contains(character) ? character | 0x20 : character
            let value = digits.firstIndex(of: lower).map { UInt8($0) }
            #expect(Hex.value(character) == value)
            #expect(decode([character, 0x30]) == value.map { [$0 << 4] })
            #expect(decode([0x30, character]) == value.map { [$0] })
            if let value { #expect(Hex.digit(value) == lower) }
        }
        for byte in UInt8.min...UInt8.max { #expect(Hex.decode(encode([byte])) == [byte]) }
    }

    @Test func numbersHaveOneSpelling() {
        #expect(number("0123456789abcdef") == 0x0123_4567_89ab_cdef)
        #expect(number("xffffffffffffffff", at: 1) == .max)
        for wrong in ["0123456789abcde", "0123456789abcdeF", "0123456789abcdeg", "0123456789abcde/", "0123456789abcde:"] {
            #expect(number(wrong) == nil)
        }
        for value: UInt64 in [0, 1, .max, 0xfedc_ba98_7654_3210] {
            var text: [UInt8] = []
            Hex.append(value, to: &text)
            #expect(number(String(decoding: text, as: UTF8.self)) == value)
        }
    }
}

private func parse(_ text: String) -> UInt64? {
    let text = Array(text.utf8)
    return Timestamp.parse(text.span, at: 0)
}

@Suite struct TimestampTests {
    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"), (1_709_251_200_001, "2024-03-01T00:00:00.001Z"),
            (4_102_444_799_123, "2099-12-31T23:59:59.123Z"), (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"), (Timestamp.endMs - 1, "9999-12-31T23:59:59.999Z"),
        ] as [(UInt64, String)])
    func writesAndParsesTheSameText(_ ms: UInt64, _ text: String) {
        #expect(Timestamp.preciseText(ms) == text)
        #expect(Timestamp.text(ms) == text.prefix(19) + "Z")
        #expect(parse(Timestamp.text(ms)) == ms / 1_000 * 1_000)
    }

    @Test func everyDayOfFourCenturiesReadsBack() {
        for day in stride(from: UInt64(0), to: 146_097, by: 7) {
            let ms = day * 86_400_000 + 3_723_000
            #expect(parse(Timestamp.text(ms)) == ms)
        }
    }

    @Test(arguments: [Timestamp.endMs, UInt64.max])
    func clampsTheYearToFourDigits(_ ms: UInt64) { #expect(Timestamp.text(ms) == "9999-12-31T23:59:59Z") }

    @Test(arguments: [
        "1969-12-31T23:59:59Z", "2001-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2000-13-01T00:00:00Z", "2000-00-01T00:00:00Z",
        "2000-01-00T00:00:00Z", "2000-04-31T00:00:00Z", "2000-01-01T24:00:00Z", "2000-01-01T00:60:00Z", "2000-01-01T00:00:60Z",
        "2000-01-01t00:00:00Z", "2000-01-01T00:00:00z", "2000-01-01 00:00:00Z", "2000-01-01T00:00:00", "",
    ])
    func refusesOtherSpellings(_ text: String) { #expect(parse(text) == nil) }
}

@Suite struct QueueTests {
    @Test func keepsItsOrder() {
        var queue = Queue<Int>()
        var expected = 0
        for number in 0..<10_000 {
            queue.append(number)
            if number % 3 == 2 {
                #expect(queue.popFirst() == expected)
                expected += 1
            }
        }
        queue.prepend(-1)
        #expect(queue.popFirst() == -1)
        #expect(queue.extract { $0 % 2 == 0 }.allSatisfy { $0 % 2 == 0 })
        while let next = queue.popFirst() { #expect(next % 2 == 1) }
        #expect(queue.isEmpty)
        queue.prepend(7)
        #expect(queue.popFirst() == 7)
        #expect(queue.popFirst() == nil)
    }

    @Test func freesMemoryAfterABurst() {
        var queue = Queue<Int>()
        for count in [1, 1_024, 1_025, 5_000] {
            queue.append(contentsOf: 0..<count)
            #expect(queue.count == count && queue.first == 0)
            for number in 0..<count { #expect(queue.popFirst() == number) }
            #expect(queue.first == nil && queue.popFirst() == nil)
        }
    }
}

@Suite struct SpellingTests {
    private static let names = ["listen", "operator-listen", "policy", "state", "node", "node-ca", "tls-key", "apns-key-id"]

    @Test(arguments: [
        ("lisen", "listen"), ("lsiten", "listen"), ("listenn", "listen"), ("Listen", "listen"),
        ("operator_listen", "operator-listen"), ("polices", "policy"), ("polcies", "policy"), ("policies", "policy"),
        ("stat", "state"), ("nod", "node"), ("nodeca", "node-ca"), ("apns-keyid", "apns-key-id"), ("TLS_KEY", "tls-key"),
    ]) func theNearestNameIsMeant(_ word: String, _ name: String) {
        #expect(Spelling.nearest(to: word, in: Self.names) == name)
    }

    @Test(arguments: ["", "x", "listen", "port", "elephant", String(repeating: "a", count: 100_000), "ü"])
    func otherWordsMeanNone(_ word: String) {
        #expect(Spelling.nearest(to: word, in: Self.names) == nil && Spelling.hint(word, Self.names) == "")
    }

    @Test(arguments: [
        ("state-dir", "state"), ("STATE_FOLDER", "state"), ("node-ca-certificate", "node-ca"), ("operator", "operator-listen"),
        ("tls", "tls-key"), ("apns-key", "apns-key-id or apns-key-path"),
    ]) func longerAndShorterFormsMeanTheName(_ word: String, _ meant: String) {
        #expect(Spelling.hint(word, Self.names + ["apns-key-path"]) == ". Did you mean \(meant)?")
    }

    @Test func theBeginningOfManyNamesMeansNone() {
        #expect(Spelling.hint("apns", ["apns-key-id", "apns-key-path", "apns-ca"]) == "")
    }

    @Test func fewerMistakesCanBeAsked() {
        #expect(Spelling.nearest(to: "operater-lisen", in: Self.names, mistakes: 2) == "operator-listen")
        #expect(Spelling.nearest(to: "opreater-lisen", in: Self.names, mistakes: 2) == nil)
        #expect(Spelling.hint("lisen", Self.names, prefix: "--") == ". Did you mean --listen?")
    }
}
