import Sodium
import Testing

@Suite struct CodecTests {
    @Test func base64() {
        // RFC 4648, section 10
        let vectors = [
            ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ]
        for (plain, text) in vectors {
            #expect(encode(Array(plain.utf8), .standard) == text)
            #expect(Base64.standard.decode(text) == Array(plain.utf8))
            let bare = String(text.prefix { $0 != "=" })
            #expect(encode(Array(plain.utf8), .url) == bare)
            #expect(Base64.url.decode(bare) == Array(plain.utf8))
        }
        #expect(encode([0xfb, 0xff], .url) == "-_8")
        #expect(encode([0xfb, 0xff], .standard) == "+/8=")
    }

    @Test func base64RefusesNonCanonicalText() {
        for wrong in ["Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "Z", "Zm9v\n", " Zm9v", "Zm 9v", "-_8=", "Zg==Zg==", "===="] {
            #expect(Base64.standard.decode(wrong) == nil, "\(wrong)")
        }
        for wrong in ["Zg==", "Zh", "Zm9", "Z", "Zm9v\n", "+/8", "Zm9v=", "="] {
            #expect(Base64.url.decode(wrong) == nil, "\(wrong)")
        }
    }

    @Test(arguments: [UInt8](0x80...0xFF))
    func base64RefusesBytesAboveASCII(_ byte: UInt8) {
        for place in 0..<4 {
            var text = Array("Zm9v".utf8)
            text[place] = byte
            for alphabet in [Base64.standard, .url] {
                var bytes = [UInt8](repeating: 0, count: 3)
                var span = bytes.mutableSpan
                let count = alphabet.decode(text.span, into: &span)
                #expect(count == nil)
            }
        }
    }

    @Test func base64StaysInItsBounds() {
        var bytes = [UInt8](repeating: 0, count: 2)
        var span = bytes.mutableSpan
        let tooLong = Base64.url.decode(Array("Zm9v".utf8).span, into: &span)
        #expect(tooLong == nil)
        let fits = Base64.url.decode(Array("Zm8".utf8).span, into: &span)
        #expect(fits == 2)
    }

    @Test func padding() {
        var bytes = [UInt8](repeating: 7, count: 128)
        var span = bytes.mutableSpan
        var padded = Sodium.pad(&span, count: 109, block: 128)
        #expect(padded == 128)
        #expect(Array(bytes[109...]) == [0x80] + [UInt8](repeating: 0, count: 18))
        #expect(unpaddedCount(bytes, block: 128) == 109)

        span = bytes.mutableSpan
        padded = Sodium.pad(&span, count: 127, block: 128)
        #expect(padded == 128)
        #expect(unpaddedCount(bytes, block: 128) == 127)
        // A full block needs another block, and there is no room for it.
        for count in [128, 129] {
            span = bytes.mutableSpan
            padded = Sodium.pad(&span, count: count, block: 128)
            #expect(padded == nil)
        }
        #expect(unpaddedCount([UInt8](repeating: 0, count: 128), block: 128) == nil)
        #expect(unpaddedCount([], block: 128) == nil)
    }
}
