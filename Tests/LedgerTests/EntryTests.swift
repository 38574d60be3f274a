import Testing

@testable import Ledger

@Suite struct EntryTests {
    static let ref = OpaqueID(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)
    static let job = OpaqueID(0xffee_ddcc_bbaa_9988_7766_5544_3322_1100)
    static let policy = Digest("305df59f9590c3c9ac63d2b2743c388e3792449078cebf7fb3dbe6471643b2b7")
    static let refHex = "000102030405060708090a0b0c0d0e0f"
    static let jobHex = "ffeeddccbbaa99887766554433221100"
    static let at: UInt64 = 1_767_323_045_000
    static let atText = "2026-01-02T03:04:05Z"

    static let each: [(Entry.Op, String)] = [
        (
            .brokerStarted(node: EntryText("a1")!, version: EntryText("0.1.0")!, policy: policy, resolutionSeconds: 60),
            #"{"at":"\#(atText)","node":"a1","op":"broker.started","policy":"\#(policy)","resolution":60,"version":"0.1.0"}"#
        ),
        (.brokerStopped(node: EntryText("a1")!), #"{"at":"\#(atText)","node":"a1","op":"broker.stopped"}"#),
        (
            .policyLoaded(name: EntryText("rooms")!, policy: policy),
            #"{"at":"\#(atText)","name":"rooms","op":"policy.loaded","policy":"\#(policy)"}"#
        ),
        (.keysGenerated(generation: 0), #"{"at":"\#(atText)","generation":0,"op":"keys.generated"}"#),
        (.keysRatcheted(epoch: 5_891_076), #"{"at":"\#(atText)","epoch":5891076,"op":"keys.ratcheted"}"#),
        (
            .tokenSealed(ref: ref, kind: .liveactivity, untilMs: at + 895_000),
            #"{"at":"\#(atText)","kind":"liveactivity","op":"token.sealed","ref":"\#(refHex)","until":"2026-01-02T03:19:00Z"}"#
        ),
        (
            .tokenOpened(ref: ref, job: job, template: EntryText("rooms.waiting")!),
            #"{"at":"\#(atText)","job":"\#(jobHex)","op":"token.opened","ref":"\#(refHex)","template":"rooms.waiting"}"#
        ),
        (
            .pushDelivered(ref: ref, job: job, status: 200),
            #"{"at":"\#(atText)","job":"\#(jobHex)","op":"push.delivered","ref":"\#(refHex)","status":200}"#
        ),
        (
            .pushFailed(ref: ref, job: job, status: 0, reason: .peerPresent),
            #"{"at":"\#(atText)","job":"\#(jobHex)","op":"push.failed","reason":"peer_present","ref":"\#(refHex)","status":0}"#
        ),
        (
            .tokenPurged(ref: ref, cause: .roomClosed),
            #"{"at":"\#(atText)","cause":"room_closed","op":"token.purged","ref":"\#(refHex)"}"#
        ),
        (
            .requestRefused(cause: .throttled, count: 4_294_967_295),
            #"{"at":"\#(atText)","cause":"throttled","count":4294967295,"op":"request.refused"}"#
        ),
        (.ledgerClosed(next: EntryText("log.example/2")!), #"{"at":"\#(atText)","next":"log.example/2","op":"ledger.closed"}"#),
    ]

    @Test(arguments: each.indices) func encodesAndReadsBack(index: Int) throws {
        let entry = Entry(atMs: Self.at, Self.each[index].0)
        #expect(text(entry.encoded) == Self.each[index].1)
        #expect(try LedgerTests.entry(entry.encoded) == entry)
    }

    @Test func everyOpIsTried() {
        for name in OpName.allCases { #expect(Self.each.contains { $0.1.contains("\"op\":\"\(name.rawValue)\"") }) }
    }

    static let sealed = each[5].1
    static let failed = each[8].1
    static let refused = each[10].1

    /// Every one is what some lenient reader takes for an entry.
    static let notCanonical: [String] = [
        "", "{}", "[]", "null", "{", sealed + " ", " " + sealed, sealed + "\n", sealed + sealed, String(sealed.dropLast()),
        sealed.replacing(",", with: ", "), sealed.replacing(":\"live", with: ": \"live"), sealed.replacing("\":", with: "\" :"),
        sealed.replacing("liveactivity", with: "Liveactivity"), sealed.replacing("liveactivity", with: "widget"),
        sealed.replacing("liveactivity", with: "liveactivit\\u0079"), sealed.replacing("token.sealed", with: "token.copied"),
        sealed.replacing("token.sealed", with: "token.sealed "), sealed.replacing(refHex, with: refHex.uppercased()),
        sealed.replacing(refHex, with: String(refHex.dropLast())), sealed.replacing(refHex, with: refHex + "0"),
        sealed.replacing(refHex, with: refHex.replacing("f", with: "g")), sealed.replacing("\"ref\":\"\(refHex)\",", with: ""),
        sealed.replacing("\"kind\":\"liveactivity\",", with: ""), sealed.replacing("\"ref\"", with: "\"Ref\""),
        sealed.replacing("\"ref\"", with: "\"room\""), sealed.replacing("\"until\"", with: "\"zntil\""),
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
        failed.replacing("peer_present", with: "my own words"), failed.replacing("peer_present", with: ""),
        refused.replacing("4294967295", with: "4294967296"), refused.replacing("4294967295", with: "18446744073709551616"),
        refused.replacing("4294967295", with: "4e9"), refused.replacing("throttled", with: "expired"),
        each[9].1.replacing("room_closed", with: "throttled"), each[4].1.replacing("5891076", with: "9007199254740992"),
        each[0].1.replacing("305df", with: "305dF"), each[0].1.replacing("305df", with: "305d"),
        each[0].1.replacing("\"a1\"", with: "\"a\\\"1\""), each[0].1.replacing("\"a1\"", with: "\"ä\""),
        each[0].1.replacing(":60,", with: ":0,"), each[0].1.replacing(":60,", with: ":3601,"),
        each[0].1.replacing("\"a1\"", with: "\"\""), each[0].1.replacing("\"a1\"", with: "\"a 1\""),
        each[0].1.replacing("\"a1\"", with: "\"\(String(repeating: "a", count: 129))\""),
        "{\"at\":\"\(atText)\",\"cause\":\"deleted\",\"count\":1,\"op\":\"request.refused\"}",
        "{\"op\":\"broker.stopped\",\"node\":\"a1\",\"at\":\"\(atText)\"}",
    ]

    @Test(arguments: notCanonical) func refusesWhatIsNotCanonical(json: String) {
        #expect(throws: EntryError.self) { try entry(bytes(json)) }
    }

    @Test func whatIsAcceptedEncodesToItself() throws {
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

    static let times: [(UInt64, String)] = [
        (0, "1970-01-01T00:00:00Z"), (951_782_400_000, "2000-02-29T00:00:00Z"), (4_107_542_399_000, "2100-02-28T23:59:59Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00Z"), (1_735_689_599_999, "2024-12-31T23:59:59Z"),
        (253_402_300_799_000, "9999-12-31T23:59:59Z"),
    ]

    @Test(arguments: times) func writesTimes(ms: UInt64, expected: String) {
        #expect(Timestamp.text(ms) == expected)
        #expect(time(expected) == ms / 1000 * 1000)
    }

    @Test func everyDayOfFourCenturiesReadsBack() {
        for day in stride(from: UInt64(0), to: 146_097, by: 7) {
            let ms = day * 86_400_000 + 3_723_000
            #expect(time(Timestamp.text(ms)) == ms)
        }
    }

    @Test func ordersByRefWithTheRefless() {
        let keys = [OpaqueID(1), OpaqueID(256), OpaqueID(UInt128(1) << 127)].map {
            Entry(atMs: 0, .tokenPurged(ref: $0, cause: .expired)).sortKey
        }
        #expect(Entry(atMs: 0, .keysGenerated(generation: 1)).sortKey.isEmpty)
        #expect(keys.allSatisfy { $0.count == 16 })
        #expect(keys[0].lexicographicallyPrecedes(keys[1]) && keys[1].lexicographicallyPrecedes(keys[2]))
    }

    @Test func reasonsAreClosed() {
        #expect(Entry.PushFailureReason(apns: "BadDeviceToken") == .badDeviceToken)
        #expect(Entry.PushFailureReason(apns: "token 0123 is bad") == .other)
    }

    @Test func namesHoldNothingThatJSONEscapes() {
        for bad in ["", "a b", "a\"b", "a\\b", "a\nb", "é", "\u{7f}", String(repeating: "a", count: 129)] {
            #expect(EntryText(bad) == nil)
        }
        #expect(EntryText(String(repeating: "a", count: 128)) != nil)
    }

    @Test func idsReadBack() {
        let id = OpaqueID.random()
        #expect(LedgerTests.id(id.bytes) == id)
        #expect(LedgerTests.id(hex: id.description) == id)
        #expect(LedgerTests.id(hex: Self.refHex.uppercased()) == nil)
        #expect(OpaqueID.random() != id)
    }
}
