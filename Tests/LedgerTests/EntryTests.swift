import Testing
import Vocabulary

@testable import Ledger

@Suite struct EntryTests {
    static let id = EntryID(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)
    static let job = JobID(0xffee_ddcc_bbaa_9988_7766_5544_3322_1100)
    static let policy = Digest("305df59f9590c3c9ac63d2b2743c388e3792449078cebf7fb3dbe6471643b2b7")
    static let binary = Digest("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    static let idHex = "000102030405060708090a0b0c0d0e0f"
    static let jobHex = "ffeeddccbbaa99887766554433221100"
    static let at: UInt64 = 1_767_323_045_000
    static let atText = "2026-01-02T03:04:05Z"
    static let until: UInt64 = 1_767_398_400_000
    static let untilText = "2026-01-03T00:00:00Z"

    static let each: [(Entry.Op, String)] = [
        (
            .brokerStarted(
                node: EntryText("a1")!, version: EntryText("0.1.0")!, policy: policy, resolutionSeconds: 60, binary: binary),
            #"{"at":"\#(atText)","binary":"\#(binary.hex)","node":"a1","op":"broker.started","policy":"\#(policy.hex)","resolution":60,"version":"0.1.0"}"#
        ),
        (.brokerStopped(node: EntryText("a1")!), #"{"at":"\#(atText)","node":"a1","op":"broker.stopped"}"#),
        (
            .policyLoaded(name: EntryText("rooms")!, policy: policy),
            #"{"at":"\#(atText)","name":"rooms","op":"policy.loaded","policy":"\#(policy.hex)"}"#
        ),
        (.keysGenerated(generation: 0), #"{"at":"\#(atText)","generation":0,"op":"keys.generated"}"#),
        (
            .keysRatcheted(epoch: 5_891_076, swept: 5_891_078),
            #"{"at":"\#(atText)","epoch":5891076,"op":"keys.ratcheted","swept":5891078}"#
        ),
        (
            .tokenSealed(id: id, untilMs: until),
            #"{"at":"\#(atText)","id":"\#(idHex)","op":"token.sealed","until":"\#(untilText)"}"#
        ),
        (
            .tokenOpened(id: id, job: job, template: EntryText("peer_waiting")!),
            #"{"at":"\#(atText)","id":"\#(idHex)","job":"\#(jobHex)","op":"token.opened","template":"peer_waiting"}"#
        ),
        (
            .pushDelivered(job: job, status: 200),
            #"{"at":"\#(atText)","job":"\#(jobHex)","op":"push.delivered","status":200}"#
        ),
        (
            .pushFailed(job: job, status: 0, reason: .unsent),
            #"{"at":"\#(atText)","job":"\#(jobHex)","op":"push.failed","reason":"unsent","status":0}"#
        ),
        (
            .tokenPurged(id: id, cause: .expired(untilMs: until)),
            #"{"at":"\#(atText)","cause":"expired","id":"\#(idHex)","op":"token.purged","until":"\#(untilText)"}"#
        ),
        (
            .requestRefused(cause: .throttled, count: 4_294_967_295),
            #"{"at":"\#(atText)","cause":"throttled","count":4294967295,"op":"request.refused"}"#
        ),
        (.ledgerClosed(next: EntryText("log.example/2")!), #"{"at":"\#(atText)","next":"log.example/2","op":"ledger.closed"}"#),
        (
            .tokenPurged(id: id, cause: .ended),
            #"{"at":"\#(atText)","cause":"ended","id":"\#(idHex)","op":"token.purged"}"#
        ),
        (
            .bucketClosed(untilMs: until, sealed: 3, expired: 2, ended: 1),
            #"{"at":"\#(atText)","ended":1,"expired":2,"op":"bucket.closed","sealed":3,"until":"\#(untilText)"}"#
        ),
        (
            .ledgerOpened(previous: EntryText("log.example/0")!, size: 9, root: binary, jobs: 2),
            #"{"at":"\#(atText)","jobs":2,"op":"ledger.opened","previous":"log.example/0","root":"\#(binary.hex)","size":9}"#
        ),
        (
            .bucketCarried(untilMs: until, live: 7),
            #"{"at":"\#(atText)","live":7,"op":"bucket.carried","until":"\#(untilText)"}"#
        ),
    ]

    // Promise: entry-canonical
    @Test(arguments: each.indices) func encodesAndReadsBack(index: Int) throws {
        let entry = Entry(atMs: Self.at, Self.each[index].0)
        #expect(text(entry.encoded) == Self.each[index].1)
        #expect(try LedgerTests.entry(entry.encoded) == entry)
    }

    @Test func everyOpHasAnExample() {
        for op in OpName.allCases {
            let name = String(decoding: op.name, as: UTF8.self)
            #expect(Self.each.contains { $0.1.contains("\"op\":\"\(name)\"") })
        }
    }

    static let sealed = each[5].1
    static let failed = each[8].1
    static let refused = each[10].1

    /// Some lenient reader accepts each of these.
    static let notCanonical: [String] = [
        "", "{}", "[]", "null", "{", sealed + " ", " " + sealed, sealed + "\n", sealed + sealed, String(sealed.dropLast()),
        sealed.replacing(",", with: ", "), sealed.replacing(":\"token", with: ": \"token"), sealed.replacing("\":", with: "\" :"),
        sealed.replacing("token.sealed", with: "token.copied"), sealed.replacing("token.sealed", with: "token.seale\\u0064"),
        sealed.replacing("token.sealed", with: "token.sealed "), sealed.replacing(idHex, with: idHex.uppercased()),
        sealed.replacing(idHex, with: String(idHex.dropLast())), sealed.replacing(idHex, with: idHex + "0"),
        sealed.replacing(idHex, with: idHex.replacing("f", with: "g")), sealed.replacing("\"id\":\"\(idHex)\",", with: ""),
        sealed.replacing("\"id\"", with: "\"Id\""), sealed.replacing("\"id\"", with: "\"ref\""),
        sealed.replacing("\"until\"", with: "\"zntil\""), sealed.replacing(",\"until\":\"\(untilText)\"", with: ""),
        sealed.replacing("{\"at\":\"\(atText)\",", with: "{"), sealed.replacing("\"op\":\"token.sealed\",", with: ""),
        sealed.replacing("{", with: "{\"at\":\"\(atText)\","), sealed.replacing("}", with: ",\"version\":\"1\"}"),
        sealed.replacing("}", with: ",}"), sealed.replacing("\"op\"", with: "\"node\":\"a\",\"op\""),
        sealed.replacing("03:04:05Z", with: "03:04:05z"), sealed.replacing("03:04:05Z", with: "03:04:05.000Z"),
        sealed.replacing("03:04:05Z", with: "03:04:05+00:00"), sealed.replacing("03:04:05Z", with: "24:04:05Z"),
        sealed.replacing("03:04:05Z", with: "03:60:05Z"), sealed.replacing("03:04:05Z", with: "03:04:60Z"),
        sealed.replacing("T03", with: " 03"), sealed.replacing("2026-01-02", with: "2026-02-29"),
        sealed.replacing("2026-01-02", with: "2026-13-02"), sealed.replacing("2026-01-02", with: "2026-00-02"),
        sealed.replacing("2026-01-02", with: "2026-01-00"), sealed.replacing("2026-01-02", with: "1969-12-31"),
        sealed.replacing("2026-01-02", with: "+026-01-02"), failed.replacing(":0}", with: ":00}"),
        failed.replacing(":0}", with: ":1000}"), failed.replacing(":0}", with: ":-0}"), failed.replacing(":0}", with: ":0.0}"),
        failed.replacing(":0}", with: ":\"0\"}"), failed.replacing(":0}", with: ":}"), failed.replacing(":0}", with: ":null}"),
        failed.replacing("unsent", with: "my own words"), failed.replacing("unsent", with: ""),
        failed.replacing("unsent", with: "peer_present"),
        refused.replacing("4294967295", with: "4294967296"), refused.replacing("4294967295", with: "18446744073709551616"),
        refused.replacing("4294967295", with: "4e9"), refused.replacing("throttled", with: "expired"),
        // Only expiries have `until`.
        each[9].1.replacing("expired", with: "ended"), each[9].1.replacing("expired", with: "throttled"),
        each[12].1.replacing("ended", with: "expired"), each[12].1.replacing("ended", with: "deleted"),
        each[4].1.replacing("5891076", with: "9007199254740992"), each[4].1.replacing("5891078", with: "9007199254740992"),
        each[13].1.replacing("\"ended\":1,", with: ""), each[13].1.replacing(":3,", with: ":03,"),
        each[14].1.replacing("e3b0", with: "E3b0"), each[15].1.replacing(":7,", with: ":0,"),
        each[0].1.replacing("305df", with: "305dF"), each[0].1.replacing("305df", with: "305d"),
        each[0].1.replacing("e3b0c", with: "e3b0"),
        each[0].1.replacing("\"a1\"", with: "\"a\\\"1\""), each[0].1.replacing("\"a1\"", with: "\"ä\""),
        each[0].1.replacing(":60,", with: ":0,"), each[0].1.replacing(":60,", with: ":61,"),
        each[0].1.replacing("\"a1\"", with: "\"\""), each[0].1.replacing("\"a1\"", with: "\"a 1\""),
        each[0].1.replacing("\"a1\"", with: "\"\(String(repeating: "a", count: 129))\""),
        "{\"at\":\"\(atText)\",\"cause\":\"ended\",\"count\":1,\"op\":\"request.refused\"}",
        "{\"op\":\"broker.stopped\",\"node\":\"a1\",\"at\":\"\(atText)\"}",
    ]

    // Promise: entry-canonical
    @Test(arguments: notCanonical) func refusesEntriesThatAreNotCanonical(json: String) {
        #expect(throws: EntryError.self) { try entry(bytes(json)) }
    }

    @Test func acceptedEntriesEncodeToTheSameBytes() throws {
        var random = SeededGenerator(seed: 1)
        var accepted = 0
        for _ in 0..<40_000 {
            var json = bytes(Self.each.randomElement(using: &random)!.1)
            let place = Int.random(in: 0..<json.count, using: &random)
            switch UInt8.random(in: 0..<4, using: &random) {
            case 0: json[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            case 1: json[place] = UInt8.random(in: 0x20..<0x7f, using: &random)
            case 2: json.remove(at: place)
            default: json.insert(json.randomElement(using: &random)!, at: place)
            }
            if let entry = try? LedgerTests.entry(json) {
                accepted += 1
                #expect(entry.encoded == json)
            }
        }
        #expect(accepted > 1000)
    }

    @Test func keysOrderEntriesOfOneRank() {
        func keys<ID: OpaqueID>(_ op: (ID) -> Entry.Op) -> [[UInt8]] { [1, 256, UInt128(1) << 127].map { op(ID($0)).sortKey } }
        let closings = [60_000, 16_000_000, Self.until].map {
            Entry.Op.bucketClosed(untilMs: $0, sealed: 0, expired: 0, ended: 0).sortKey
        }
        for (keys, count) in [
            (keys { .tokenPurged(id: $0, cause: .ended) }, 16), (keys { .pushDelivered(job: $0, status: 200) }, 16),
            (closings, 8),
        ] {
            #expect(keys.allSatisfy { $0.count == count })
            #expect(keys[0].lexicographicallyPrecedes(keys[1]) && keys[1].lexicographicallyPrecedes(keys[2]))
        }
        #expect(Entry.Op.keysGenerated(generation: 1).sortKey.isEmpty)
        #expect(Self.each.map(\.0.rank) == [0, 0, 0, 0, 0, 3, 1, 2, 2, 4, 0, 6, 4, 5, 0, 0])
    }

    @Test func reasonsAreClosed() {
        for reason in PushReason.allCases {
            let bytes = Entry(atMs: 0, .pushFailed(job: JobID(1), status: 0, reason: reason)).encoded
            #expect(((try? Entry(canonical: bytes.span)) != nil) == (reason.recorded == reason), "\(reason)")
        }
    }

    @Test func namesAreNeverEscapedInJSON() {
        for bad in ["", "a b", "a\"b", "a\\b", "a\nb", "é", "\u{7f}", String(repeating: "a", count: 129)] {
            #expect(EntryText(bad) == nil)
        }
        #expect(EntryText(String(repeating: "a", count: 128)) != nil)
    }

    @Test func idsReadBack() {
        #expect(LedgerTests.id(Self.id.bytes) == Self.id)
        #expect(LedgerTests.id(hex: Self.id.description) == Self.id)
        #expect(LedgerTests.id(hex: Self.idHex.uppercased()) == nil)
    }
}
