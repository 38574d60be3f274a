import FoundationEssentials
import Ledger
import Linux
import Sodium
import Testing
import Vocabulary

@testable import Sealing

/// The published vectors (Tests/Vectors/sealing.json), which check_sealing.py recomputes from the description alone.
@Suite struct VectorTests {
    private struct Vectors: Decodable {
        struct Derived: Decodable {
            let key: String, label: String, fields: [String], output: String
        }
        struct Stepped: Decodable {
            let base: UInt64, file: String
        }
        struct Wrapped: Decodable {
            let key: String, nonce: String, file: String
        }
        let file: String, stepped: Stepped, wrapped: Wrapped, derivations: [Derived], cases: [Case]
    }

    private struct Case: Decodable {
        enum Output: Decodable, Equatable {
            case one(String)
            case many([String])

            init(from decoder: any Decoder) throws {
                let value = try decoder.singleValueContainer()
                if let many = try? value.decode([String].self) {
                    self = .many(many)
                } else {
                    self = .one(try value.decode(String.self))
                }
            }
        }
        let op: String, output: Output
        var room, member, token, ref, purge, job, nonce, handle, code, key, id: String?
        var joinid, client, audience, app, template, kind, environment: String?
        var size: Int?
        var generation: UInt32?
        var slot: UInt8?
        var label, owner, note: String?
        var fields: [String]?
        var block: Int?
        var life, step: UInt64?
        var now, expiry, until, deadline, sealed: UInt64?
    }

    private let vectors: Vectors
    private let folder: KeyFolder

    init() throws {
        let path = #filePath.split(separator: "/").dropLast(2).joined(separator: "/")
        let json = try File.read("/\(path)/Vectors/sealing.json", limit: 1_000_000)
        vectors = try JSONDecoder().decode(Vectors.self, from: Data(json))
        folder = try KeyFolder(creating: nil)
        try folder.write(bytes(vectors.file))
    }

    // Promise: key-derivation
    @Test func derivationsMatch() throws {
        for vector in vectors.derivations {
            let digest = derive(try bytes(vector.key), vector.label, try vector.fields.map(bytes))
            #expect(hex(digest.bytes) == vector.output)
        }
    }

    @Test func aStepWritesTheDescribedFile() throws {
        let ring = try folder.load()
        #expect(try ring.step(nowMs: Epoch(vectors.stepped.base + 1).startMs)?.steps == ring.steps)
        #expect(try hex(folder.bytes()) == vectors.stepped.file)
    }

    @Test func aWrappedFileMatchesTheDescription() throws {
        let (key, nonce) = (try bytes(vectors.wrapped.key), try bytes(vectors.wrapped.nonce))
        let wrapping = try some(WrappingKey(key.span))
        let image = try KeyFile(path: folder.path).read()
        #expect(hex(WrappedImage.seal(image, under: wrapping, nonce: InlineArray { nonce[$0] })) == vectors.wrapped.file)
        let file = try bytes(vectors.wrapped.file)
        var inside: [UInt8] = []
        try WrappedImage.open(file.span, with: wrapping).withBytes { for index in $0.indices { inside.append($0[index]) } }
        #expect(hex(inside) == vectors.file)
    }

    // Promise: sealed-formats
    @Test func sealsAndIndexesMatch() throws {
        for (number, vector) in vectors.cases.enumerated() {
            #expect(try output(vector) == vector.output, "case \(number): \(vector.op)")
        }
        #expect(Set(vectors.cases.map(\.op)).count == 20)
    }

    private func output(_ v: Case) throws -> Case.Output {
        let nonce = try bytes(v.nonce ?? String(repeating: "00", count: 24))
        let ring = try KeyRing(
            path: folder.path, image: KeyFile(path: folder.path).read(), longestLifeSeconds: KeyRing.longestLifeSeconds,
            nonce: { InlineArray { nonce[$0] } })
        let joinID = Array((v.joinid ?? "").utf8)
        let client = Array((v.client ?? "").utf8)
        func room() throws -> RoomID { RoomID(try .copy(bytes(some(v.room)))) }
        func member() throws -> MemberSecret { MemberSecret(try .copy(bytes(some(v.member)))) }
        func code() throws -> Digest { try some(digest(bytes(some(v.code)))) }
        let generation = v.generation ?? 0

        switch v.op {
        case "room_index": return .one(hex(ring.roomIndex(try room()).bytes))
        case "member_hash": return .one(hex(ring.memberHash(try member()).bytes))
        case "code_indexes": return .many(try ring.codeIndexes(joinID.span, nowMs: some(v.now)).map { hex($0.bytes) })
        case "client_index":
            let index = try ring.clientIndex(
                room(), slot: some(v.slot), client: client.span, expiryMs: some(v.expiry), generation: generation)
            return .one(hex(index.bytes))
        case "seal_token":
            let (address, context) = (try address(v), try tokenContext(v))
            let sealed = try ring.sealToken(
                address, ref: ref(v), sealedAtMs: some(v.sealed), context: context, room: room(), size: size(v))
            #expect(try ring.open(sealed, context, room()).address == address)
            return .one(hex(sealed))
        case "seal_audience_token":
            let (address, context) = (try address(v), try tokenContext(v))
            let audience = Array(try some(v.audience).utf8)
            let sealed = try ring.sealToken(
                address, ref: ref(v), sealedAtMs: some(v.sealed), context: context, audience: audience.span, size: size(v))
            #expect(try ring.open(sealed, context, audience: audience).address == address)
            return .one(hex(sealed))
        case "seal_ref":
            let sealed = try ring.sealRef(ref(v), context: tokenContext(v), room: room())
            #expect(try ring.openRef(sealed.span, context: tokenContext(v), room: room()) == ref(v))
            return .one(hex(sealed))
        case "seal_audience_ref":
            let audience = Array(try some(v.audience).utf8)
            let sealed = try ring.sealRef(ref(v), context: tokenContext(v), audience: audience.span)
            #expect(try ring.openRef(sealed.span, context: tokenContext(v), audience: audience.span) == ref(v))
            return .one(hex(sealed))
        case "ledger_ids":
            let until = try some(v.until)
            let ref = try ref(v)
            return .many(
                [ref.sealedID(untilMs: until), ref.openedID(try jobID(v)), ref.purgeID(untilMs: until)].map(\.description))
        case "audience_index":
            let label: [String: AudienceLabel] = [
                "audience-index": .audience, "owner-index": .owner, "session-index": .session, "active-client": .activeClient,
                "seen-index": .seen,
            ]
            return .one(hex(try ring.index(some(label[some(v.label)]), slot(v), fields(v)).bytes))
        case "device_index":
            let token = try Secret.copy(bytes(some(v.token)))
            let index = try ring.deviceIndex(
                slot(v), owner: Array(some(v.owner).utf8), kind: kind(v), device: DeviceName(token: token))
            return .one(hex(index.bytes))
        case "seal_note":
            let label: [String: NoteLabel] = ["details": .details, "update": .update, "fields": .fields, "timer": .timer]
            let (name, note, block) = (try some(label[some(v.label)]), try bytes(some(v.note)), try some(v.block))
            let sealed = try ring.sealNote(note, name, slot(v), fields(v), block: block)
            #expect(try ring.note(sealed, name, slot(v), fields(v), block: block) == note)
            return .one(hex(sealed))
        case "places":
            let slots = try ring.expirySlots(lifeMs: some(v.life), stepMs: some(v.step), nowMs: some(v.now))
            return .many(slots.map { "\($0.generation) \($0.expiryMs)" })
        case "seal_pending":
            return .one(
                hex(
                    try ring.sealPending(
                        room(), joinID: joinID.span, expiryMs: some(v.expiry), generation: generation, codeIndex: code())))
        case "seal_creator":
            return .one(
                hex(
                    try ring.sealCreator(
                        member(), joinID: joinID.span, client1: client.span, untilMs: some(v.expiry), generation: generation,
                        codeIndex: code())))
        case "seal_retry":
            return .one(
                hex(
                    try ring.sealRetry(
                        room(), member(), joinID: joinID.span, client2: client.span, untilMs: some(v.until),
                        generation: generation, codeIndex: code())))
        case "seal_job":
            let content = JobContent(
                address: try address(v), sealedAtMs: try some(v.sealed), handle: try id(v.handle))
            return .one(hex(try ring.sealJob(content, context: jobContext(v), size: size(v))))
        case "app_id":
            return .one("\(AppID(bundleID: try some(v.app)))")
        case "apns_id":
            return .one(try ring.apnsID(jobID(v), deadlineMs: some(v.deadline), generation: generation))
        case "make_handle":
            let id = try bytes(some(v.id))
            return .one(
                "\(ring.handle(key: try .copy(bytes(some(v.key))), kind: try some(v.kind), slot: try some(v.slot), id: id.span))")
        default:
            Issue.record("an operation that these tests don't know: \(v.op)")
            return .many([])
        }
    }

    private func derive(_ key: [UInt8], _ label: String, _ fields: [[UInt8]]) -> Digest {
        var derivation = Derivation(key.span, Label(label))
        for field in fields { derivation.add(field.span) }
        return derivation.digest()
    }

    private func tokenContext(_ v: Case) throws -> TokenContext {
        TokenContext(
            generation: try some(v.generation), kind: try kind(v), slot: try some(v.slot), expiryMs: try some(v.expiry),
            purgeID: try id(v.purge))
    }

    private func jobContext(_ v: Case) throws -> JobContext {
        JobContext(
            generation: try some(v.generation), job: try jobID(v), purgeID: try id(v.purge), kind: try kind(v),
            slot: try some(v.slot), template: try some(v.template), deadlineMs: try some(v.deadline),
            expiryMs: try some(v.expiry))
    }

    private func address(_ v: Case) throws -> PushAddress {
        PushAddress(
            .apns(AppID(bundleID: try some(v.app)), try environment(v)), token: try .copy(bytes(some(v.token))))
    }

    private func size(_ v: Case) throws -> AddressSize { try some(AddressSize(rawValue: some(v.size))) }

    private func ref(_ v: Case) throws -> Ref { try id(v.ref) }
    private func slot(_ v: Case) throws -> ExpirySlot {
        ExpirySlot(generation: try some(v.generation), expiryMs: try some(v.expiry))
    }
    private func fields(_ v: Case) throws -> [[UInt8]] { try some(v.fields).map(bytes) }
    private func jobID(_ v: Case) throws -> JobID { try id(v.job) }
    private func kind(_ v: Case) throws -> TokenKind {
        try some(["alert": .alert, "voip": .voip, "liveactivity": .liveActivity][some(v.kind)])
    }
    private func environment(_ v: Case) throws -> PushEnvironment {
        try some(["production": .production, "sandbox": .sandbox][some(v.environment)])
    }

    private func id<ID: OpaqueID>(_ digits: String?) throws -> ID {
        let digits = Array(try some(digits).utf8)
        return try some(ID(hex: digits.span))
    }
    private func some<Value>(_ value: Value?) throws -> Value { try #require(value) }
    private func bytes(_ text: String) throws -> [UInt8] { try some(Hex.decode(text)) }
    private func hex(_ bytes: [UInt8]) -> String { Hex.encode(bytes.span) }
    private func digest(_ bytes: [UInt8]) -> Digest? { Digest(bytes: bytes.span) }
}
