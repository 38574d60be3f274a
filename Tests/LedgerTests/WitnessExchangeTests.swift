import Sodium
import Testing
import Vocabulary

@testable import Ledger

@Suite struct WitnessExchangeTests {
    static let witness = TestWitness(50)
    static let log = try! signingKey("log.example/a")
    static let head = log.sign(size: 10, root: .leaf([1].span))
    static let dates: ClosedRange<UInt64> = 1_000...2_000

    func exchange(known: UInt64 = 4, head: SignedNote = Self.head, size: UInt64 = 10) -> WitnessExchange {
        WitnessExchange(key: Self.witness.key, head: head, size: size, knownSize: known)
    }

    func line(_ signature: SignedNote.Signature) -> String {
        let bytes = [UInt8](bigEndian: signature.keyID) + signature.bytes
        return "\u{2014} \(signature.name) \(Base64.standard.encode(bytes.span))\n"
    }

    func cosignature(_ seconds: UInt64 = 1_500) -> SignedNote.Signature { Self.witness.cosign(Self.head.text, at: seconds) }

    func take(_ status: UInt16, _ body: String, type: String? = nil, known: UInt64 = 4) -> WitnessExchange.Step {
        var exchange = exchange(known: known)
        return exchange.take(status: status, contentType: type, body: bytes(body), dates: Self.dates)
    }

    @Test func writesTheRequest() {
        let hashes = [Digest.leaf([1].span), Digest.leaf([2].span)]
        let body = exchange().body(proof: hashes)
        #expect(text(body) == "old 4\n\(hashes[0].base64)\n\(hashes[1].base64)\n\n" + text(Self.head.encoded))
        #expect(text(exchange(known: 0).body(proof: [])) == "old 0\n\n" + text(Self.head.encoded))
        #expect(exchange(known: 99).oldSize == 10, "never from more than there is")
    }

    @Test func acceptsACosignature() {
        #expect(take(200, line(cosignature())) == .cosigned(cosignature()))
        // Other signatures, also of the witness's other keys, are ignored.
        let others =
            line(TestWitness(51).cosign(Self.head.text, at: 1_500)) + line(Self.head.signatures[0])
            + line(TestWitness(52, name: Self.witness.key.name).cosign(Self.head.text, at: 1_500))
        #expect(take(200, others + line(cosignature())) == .cosigned(cosignature()))
        #expect(take(200, line(cosignature()) + others, type: "text/html") == .cosigned(cosignature()))
        #expect(take(200, line(cosignature(9)) + line(cosignature())) == .cosigned(cosignature()))
        #expect(take(200, others) == .failed(.unsigned))
    }

    @Test func refusesInvalidCosignatures() {
        let good = cosignature()
        let damaged = SignedNote.Signature(
            name: good.name, keyID: good.keyID, bytes: good.bytes.dropLast() + [good.bytes.last! ^ 1])
        #expect(take(200, line(damaged)) == .failed(.forged))
        #expect(take(200, line(good) + line(damaged)) == .failed(.forged), "one that lies beside the truth lies")
        #expect(take(200, line(Self.witness.cosign("other\n10\nAAAA\n", at: 1_500))) == .failed(.forged))
        for seconds in [0, 999, 2_001, 1 << 40] as [UInt64] {
            #expect(take(200, line(cosignature(seconds))) == .failed(.misdated))
        }
        for seconds in [1 << 63, .max] as [UInt64] { #expect(take(200, line(cosignature(seconds))) == .failed(.forged)) }
        let plain = SignedNote.Signature(name: good.name, keyID: good.keyID, bytes: Array(good.bytes.dropFirst(8)))
        #expect(take(200, line(plain)) == .failed(.forged))
    }

    @Test func refusesMalformedLines() {
        let good = line(cosignature())
        for body in [
            "", "\n", good.dropLast().description, good + "\n", "\n" + good, good + "x", "x" + good,
            good.replacing("\n", with: "\r\n"),
            "\u{0}" + good, "other\n1\nAAAA\n\n" + good, good + "\nother\n1\nAAAA\n\n" + good, "old 4\n" + good,
            String(repeating: good, count: 65),
        ] {
            #expect(take(200, body) == .failed(.malformed), "\(body)")
        }
        var exchange = exchange()
        let noise = [0xff, 0xfe] + bytes(good)
        #expect(exchange.take(status: 200, contentType: nil, body: noise, dates: Self.dates) == .failed(.malformed))
    }

    @Test func startsAtTheWitnessesSize() {
        for (answer, size) in [("0\n", 0), ("3\n", 3), ("9\n", 9), ("10\n", 10)] as [(String, UInt64)] {
            var exchange = exchange()
            let step = exchange.take(status: 409, contentType: "text/x.tlog.size", body: bytes(answer), dates: Self.dates)
            #expect(step == .ask)
            #expect(exchange.oldSize == size)
        }
        #expect(take(409, "3\n", type: "Text/X.Tlog.Size; charset=utf-8") == .ask)
    }

    @Test func retriesAtMostTwice() {
        var exchange = exchange()
        let steps = [1, 2, 3].map { (size: Int) in
            exchange.take(status: 409, contentType: "text/x.tlog.size", body: bytes("\(size)\n"), dates: Self.dates)
        }
        #expect(steps == [.ask, .ask, .failed(.restless)])
    }

    @Test func aLargerSizeIsAContradiction() {
        for size in [11, 1 << 63, UInt64.max] {
            #expect(take(409, "\(size)\n", type: "text/x.tlog.size") == .failed(.ahead(claimed: size, size: 10)))
        }
        #expect(WitnessFailure.ahead(claimed: 11, size: 10).isContradiction)
    }

    @Test func anotherRootIsAContradiction() {
        // The requested size is the checkpoint's size.
        #expect(take(409, "10\n", type: "text/x.tlog.size", known: 10) == .failed(.forked(size: 10)))
        #expect(take(409, "", known: 10) == .failed(.forked(size: 10)))
        // Our proof was verified against our root.
        #expect(take(422, "") == .failed(.forked(size: 4)))
        #expect(take(422, "", known: 0) == .failed(.refused(status: 422)), "there was no proof")
        #expect(WitnessFailure.forked(size: 10).isContradiction)
        // All empty trees are equal.
        var empty = exchange(known: 0, head: Self.log.sign(size: 0, root: .emptyRoot), size: 0)
        let step = empty.take(status: 409, contentType: "text/x.tlog.size", body: bytes("0\n"), dates: Self.dates)
        #expect(step == .failed(.malformed))
    }

    @Test(arguments: [
        "", "\n", "4", " 3\n", "3 \n", "3\n\n", "03\n", "+3\n", "-3\n", "0x3\n", "many\n", "18446744073709551616\n", "3\r\n",
    ])
    func refusesMalformedSizes(body: String) {
        #expect(take(409, body, type: "text/x.tlog.size") == .failed(.malformed))
        #expect(take(409, body, type: "text/x.tlog.size", known: 10) == .failed(.malformed))
    }

    @Test func aConflictWithoutTheContentTypeIsIgnored() {
        for type in [nil, "", "text/plain", "text/x.tlog.sizes"] {
            #expect(take(409, "3\n", type: type) == .failed(.malformed))
        }
        #expect(take(409, "4\n", type: "text/x.tlog.size") == .failed(.malformed), "the very size that was asked from")
    }

    @Test func otherAnswersFail() {
        #expect(take(403, "") == .failed(.untrusted))
        #expect(take(404, "") == .failed(.unknownLog))
        for status in [0, 100, 201, 204, 301, 307, 400, 401, 408, 429, 500, 503, 999] as [UInt16] {
            #expect(take(status, line(cosignature())) == .failed(.refused(status: status)))
        }
        for failure in [
            WitnessFailure.untrusted, .unknownLog, .refused(status: 500), .malformed, .unsigned, .forged, .misdated, .restless,
        ] {
            #expect(!failure.isContradiction)
            #expect(!failure.description.isEmpty)
        }
    }

    /// Proofs are verified against the signed root before a witness gets them.
    @Test func proofsLeadToTheRoot() async throws {
        let log = PublishedLog()
        var source = log.source
        var (tiles, roots) = (TileLog(), [Digest.emptyRoot])
        for number in 0..<600 {
            let plan = tiles.append([leaf(number)])
            roots.append(plan.root)
            for file in plan.files { source.files[file.path] = file.bytes }
            tiles = plan.log
        }
        var reader = TileReader(source, size: 600)
        for old in [1, 2, 3, 255, 256, 257, 511, 512, 599] as [UInt64] {
            let hashes = try await reader.consistencyProof(oldSize: old, leadingTo: roots[600])
            let proof = ConsistencyProof(oldSize: old, newSize: 600, hashes: hashes)
            #expect(proof.isValid(oldRoot: roots[Int(old)], newRoot: roots[600]))
            #expect(hashes.count <= 63)
        }
        for old in [0, 600] as [UInt64] {
            #expect(try await reader.consistencyProof(oldSize: old, leadingTo: roots[600]).isEmpty)
        }
        source.files[TilePath.hashes(level: 0, index: 1)]![40] ^= 1
        var damaged = TileReader(source, size: 600)
        await #expect(throws: VerificationFailure.self) {
            try await damaged.consistencyProof(oldSize: 300, leadingTo: roots[600])
        }
    }
}
