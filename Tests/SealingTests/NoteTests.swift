import Sodium
import Testing
import Vocabulary

@testable import Sealing

/// Notes open only in their slot and with their label until they expire. Indexes depend on each of their parts.
@Suite struct NoteTests {
    private let folder: KeyFolder
    private let ring: KeyRing
    private let start = KeyFolder.startMs
    private let slot: ExpirySlot

    init() throws {
        folder = try KeyFolder()
        ring = try folder.load()
        slot = ring.expirySlot(lifeMs: 3_600_000, stepMs: 3_600_000, nowMs: start)
    }

    private let ref = [UInt8](1...16)

    private func seal(_ bytes: [UInt8], block: Int = 64) throws -> [UInt8] {
        try ring.sealNote(bytes, .details, slot, [ref], block: block)
    }

    @Test(arguments: [0, 1, 61, 62, 63, 64, 125, 126, 1_000, 65_535]) func notesAreSealedInBlocksAndReopened(count: Int) throws {
        let bytes = Sodium.randomBytes(count)
        for block in [16, 64, 100, 512] {
            let sealed = try seal(bytes, block: block)
            #expect(
                (sealed.count - 40).isMultiple(of: block) && sealed.count - 40 > count + 2
                    && sealed.count - 40 <= count + 2 + block)
            #expect(try ring.note(sealed, .details, slot, [ref], block: block) == bytes)
        }
        #expect(try seal(bytes) != seal(bytes))
        #expect(try folder.load().note(seal(bytes), .details, slot, [ref]) == bytes)
    }

    @Test func paddingInNotesIsKept() throws {
        for bytes in [[0x80], [0x80, 0], [0, 0, 0], [0x80, 0x80, 0]] as [[UInt8]] {
            #expect(try ring.note(seal(bytes), .details, slot, [ref]) == bytes)
        }
    }

    @Test func changedBytesAreRefused() throws {
        let sealed = try seal([1, 2, 3])
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 0x40
            #expect(throws: SealingError.doesNotOpen) { try ring.note(changed, .details, slot, [ref]) }
        }
        for count in [0, 1, 39, 40, 103] {
            #expect(throws: SealingError.doesNotOpen) { try ring.note(Array(sealed.prefix(count)), .details, slot, [ref]) }
        }
        #expect(throws: SealingError.doesNotOpen) {
            try ring.note(sealed + [UInt8](repeating: 0, count: 64), .details, slot, [ref])
        }
        #expect(throws: SealingError.doesNotOpen) { try ring.note(sealed, .details, slot, [ref], block: 65) }
    }

    @Test func aMovedOrRenamedNoteDoesNotOpen() throws {
        let sealed = try seal([1, 2, 3])
        func open(_ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]]) throws -> [UInt8] {
            try ring.note(sealed, label, slot, fields)
        }
        #expect(try open(.details, slot, [ref]) == [1, 2, 3])
        for label in NoteLabel.allCases where label != .details {
            #expect(throws: SealingError.doesNotOpen) { try open(label, slot, [ref]) }
        }
        for fields in [[], [[]], [ref, []], [Array(ref.dropLast())], [Array(ref.dropLast()), [16]], [ref.reversed()]]
            as [[[UInt8]]]
        {
            #expect(throws: SealingError.doesNotOpen) { try open(.details, slot, fields) }
        }
        // Also in the same epoch, with the same key.
        for expiry in [slot.expiryMs + 1, slot.expiryMs - 1, slot.expiryMs + 300_000, 0, .max] {
            #expect(throws: SealingError.doesNotOpen) { try open(.details, ExpirySlot(generation: 1, expiryMs: expiry), [ref]) }
        }
        #expect(throws: SealingError.doesNotOpen) {
            try open(.details, ExpirySlot(generation: 2, expiryMs: slot.expiryMs), [ref])
        }
        #expect(throws: SealingError.doesNotOpen) { try KeyFolder().load().note(sealed, .details, slot, [ref]) }
    }

    @Test func nothingOpensTenMinutesAfterItsExpiry() throws {
        let sealed = try seal([1, 2, 3])
        _ = try ring.step(nowMs: slot.expiryMs)
        #expect(try ring.note(sealed, .details, slot, [ref]) == [1, 2, 3])
        _ = try ring.step(nowMs: slot.expiryMs + 600_000)
        #expect(throws: SealingError.doesNotOpen) { try ring.note(sealed, .details, slot, [ref]) }
        #expect(throws: SealingError.doesNotOpen) { try folder.load().note(sealed, .details, slot, [ref]) }
        #expect(throws: SealingError.outOfReach) { try seal([1]) }
        #expect(throws: SealingError.outOfReach) { try ring.index(.audience, slot, [ref]) }
    }

    @Test func aNoteCanStartWithASecret() throws {
        let key = try Secret.random(32)
        for bytes in [[], [1, 2, 3]] as [[UInt8]] {
            let sealed = try ring.sealNote(key, bytes, .details, slot, [ref], block: 64)
            let opened = try ring.openSecretNote(sealed.span, .details, slot, [ref], block: 64)
            #expect(opened.secret == key && opened.bytes == bytes)
            #expect(try ring.note(sealed, .details, slot, [ref]) == key.plain + bytes)
        }
        // A note that is too short to start with a secret.
        let short = try seal([UInt8](repeating: 1, count: 31))
        #expect(throws: SealingError.doesNotOpen) {
            _ = try ring.openSecretNote(short.span, .details, slot, [ref], block: 64)
        }
    }

    @Test func indexesStartWithTheExpiryAndDependOnEachPart() throws {
        let token = try Secret.random(32)
        var all: [Digest] = []
        for label in AudienceLabel.allCases {
            all.append(try ring.index(label, slot, [[1]]))
            all.append(try ring.index(label, slot, [[2]]))
            all.append(try ring.index(label, slot, [[1], []]))
            all.append(try ring.index(label, slot, []))
        }
        // With the boundary of the fields moved, and with another expiry in the same epoch.
        for expiry in [slot.expiryMs + 1, slot.expiryMs + 300_000] {
            all.append(try ring.index(.owner, ExpirySlot(generation: 1, expiryMs: expiry), [[1]]))
        }
        for kind in TokenKind.allCases {
            all.append(try ring.deviceIndex(slot, owner: [1], kind: kind, device: DeviceName(token: token)))
            all.append(try ring.deviceIndex(slot, owner: [2], kind: kind, device: DeviceName(token: token)))
            all.append(try ring.deviceIndex(slot, owner: [1], kind: kind, device: DeviceName(token: .random(32))))
        }
        #expect(Set(all).count == all.count)
        // With the same key, only the label differs.
        #expect(Set(all.map { Array($0.bytes.dropFirst(8)) }).count == all.count - 1)
        let expiry = (0..<8).map { UInt8(truncatingIfNeeded: slot.expiryMs >> (56 - 8 * $0)) }
        #expect(all.count { Array($0.bytes.prefix(8)) == expiry } == all.count - 2)
        let again = try folder.load().deviceIndex(slot, owner: [1], kind: .alert, device: DeviceName(token: .copy(token.plain)))
        #expect(try ring.deviceIndex(slot, owner: [1], kind: .alert, device: DeviceName(token: token)) == again)
        #expect(try ring.index(.device, slot, [[1], [1], token.plain]) == again)
    }
}

// `#expect` can't take spans, so these take arrays.
extension KeyRing {
    func note(
        _ sealed: [UInt8], _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], block: Int = 64
    ) throws -> [UInt8] {
        try openNote(sealed.span, label, slot, fields, block: block)
    }
}
