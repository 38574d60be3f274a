import Sodium
import Testing
import Vocabulary

@testable import Sealing

@Suite struct SecretTests {
    private func token(_ text: String) throws -> [UInt8]? { try Secret(hexToken: text.bytes.span)?.plain }
    private func room(_ text: String) throws -> [UInt8]? { try RoomID(base64url: text.bytes.span)?.secret.plain }

    // Promise: secrets-redacted
    @Test func secretsAreRedacted() throws {
        let secret = try Secret.copy("topsecret".bytes)
        let room = RoomID(try .random(32))
        var dumped = ""
        dump([secret], to: &dumped)
        dump(room, to: &dumped)
        for text in [
            "\(secret)", String(reflecting: secret), String(describing: Optional(secret)), "\(room)", String(reflecting: [room]),
            dumped,
        ] {
            #expect(text.contains("redacted"))
            #expect(!text.contains("116") && !text.contains("slot") && !text.contains("count"))
        }
        #expect(Mirror(reflecting: secret).children.isEmpty && Mirror(reflecting: room).children.isEmpty)
    }

    @Test func comparesByContent() throws {
        #expect(try Secret.copy([1, 2]) == Secret.copy([1, 2]))
        #expect(try Secret.copy([1, 2]) != Secret.copy([1, 3]))
        #expect(try Secret.copy([1, 2]) != Secret.copy([1, 2, 0]))
        #expect(try Secret.random(32) != Secret.random(32))
    }

    @Test func tokenFromHex() throws {
        #expect(try token("00fFaB") == [0x00, 0xff, 0xab])
        #expect(try token(String(repeating: "a1", count: 100))?.count == 100)
        for wrong in ["", "0", "000", "0g", " 00", "0x00", "00\n", String(repeating: "a1", count: 101)] {
            #expect(try token(wrong) == nil, "\(wrong)")
        }
    }

    @Test func roomFromBase64URL() throws {
        let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
        #expect(try room(text) == Array(0..<32))
        let ascii = text.bytes
        let made = try RoomID(base64url: ascii.span)
        #expect(try #require(made).secret.withBytes { Base64.url.encode($0) } == text)
        // Trailing bits, padding, the other alphabet, another length.
        for wrong in [
            "", String(text.dropLast()) + "9", text + "=", String(text.dropLast()), text + "A", "+" + text.dropFirst(),
            String(text.dropLast(2)) + "\n8",
        ] {
            #expect(try room(wrong) == nil, "\(wrong)")
        }
    }

    // Promise: secrets-wiped
    @Test func slotsAreWipedAndReleased() throws {
        let arena = Arena(capacity: 1)
        var slots: [Held] = []
        for _ in 0..<512 { slots.append(Held(try arena.take())) }
        #expect(arena.used == 512)
        #expect(throws: SealingError.outOf(.exhausted)) { _ = Held(try arena.take()) }
        slots[3].slot.withMutableBytes(128) { bytes in for index in bytes.indices { bytes[index] = 0xaa } }
        slots.remove(at: 3)
        #expect(arena.used == 511)
        // The last slot released is the next one taken, so a missing wipe would show.
        let again = try arena.take()
        let sum = again.withBytes(128) { bytes in
            var sum = 0
            for index in bytes.indices { sum += Int(bytes[index]) }
            return sum
        }
        #expect(sum == 0)
        slots = []
        _ = consume again
        #expect(arena.used == 0)
    }

    @Test func theReserveIsForAcknowledgedPushesOnly() throws {
        let arena = Arena(capacity: 1_024, reserve: 100)
        try arena.prepare()
        var slots: [Held] = []
        while slots.count < 1_024 - 100 { slots.append(Held(try arena.take())) }
        #expect(throws: SealingError.outOf(.exhausted)) { _ = Held(try arena.take()) }
        for _ in 0..<100 { slots.append(Held(try arena.take(for: .acknowledgedPush))) }
        #expect(throws: SealingError.outOf(.exhausted)) { _ = Held(try arena.take(for: .acknowledgedPush)) }
        slots.removeLast(100)
        #expect(throws: SealingError.outOf(.exhausted)) { _ = Held(try arena.take()) }
        slots.removeLast()
        slots.append(Held(try arena.take()))
        #expect(arena.used == 1_024 - 100)
    }

    /// Requests with addresses of browsers take no place of a push that was acknowledged.
    @Test func pushedAddressesHaveTheirOwnMemory() throws {
        try Arena.prepare(webPush: true)
        let bytes = [UInt8](repeating: 7, count: 500)
        var (requests, pushes) = ([Secret](), [Secret]())
        #expect(throws: SealingError.outOf(.exhausted)) { while true { requests.append(try Secret(copying: bytes.span)) } }
        // 1,024 to browsers' makers, 512 to other hosts, and 32 that are opened.
        while pushes.count < 1_024 + 512 + 32 { pushes.append(try Secret(copying: bytes.span, for: .acknowledgedPush)) }
        // One network may have 819 under way.
        #expect(requests.count > 2 * 819)
        #expect(Arena.byteCount(webPush: true) < 8 << 20)
    }

    @Test func aFailedSecretReleasesItsSlot() throws {
        for _ in 0..<2000 { #expect(try token("zz") == nil) }
        #expect(Arena.shared.used < 2000)
    }

    @Test func manyThreadsShareTheArena() async throws {
        await withTaskGroup(of: Bool.self) { group in
            for number in 0..<8 {
                group.addTask {
                    for round in 0..<300 {
                        let bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: number * 31 + round), count: 100)
                        guard let secret = try? Secret.copy(bytes), secret.plain == bytes else { return false }
                    }
                    return true
                }
            }
            for await isRight in group { #expect(isRight) }
        }
    }

    private final class Held {
        let slot: Slot
        init(_ slot: consuming Slot) { self.slot = slot }
    }
}

@Suite struct NameTests {
    @Test func digestsKeepTheirBytes() throws {
        let bytes = [UInt8](100..<132)
        let made = Digest(bytes: bytes.span)
        let digest = try #require(made)
        #expect(digest.bytes == bytes)
        let lent = digest.withBytes { [$0[0], $0[31]] }
        #expect(lent == [100, 131])
        let short = Digest(bytes: [1].span)
        #expect(short == nil)
        #expect(digest.description == "<digest>")
    }
}
