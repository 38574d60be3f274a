import Foundation
import Testing

@testable import MayflyClient

let repository = URL(fileURLWithPath: #filePath).appending(path: "../../../../..").standardized

struct JoinCodeTests {
    @Test func randomCodesHave50Bits() {
        let codes = (0..<1000).map { _ in JoinCode.random().text }
        #expect(Set(codes).count == 1000)
        #expect(codes.allSatisfy { $0.count == 10 })
        // Each of the 32 characters at each place: missing one by chance has odds of 10^-11.
        for place in 0..<10 { #expect(Set(codes.map { Array($0)[place] }).count == 32) }
        #expect(JoinCode.random(length: 16).text.count == 16)
    }

    @Test(arguments: ["7k3m9qxw2d", "7K3M9-QXW2D", " 7k3m9 – qxw2d\n", "7 K 3 M 9 Q X W 2 D"])
    func readsWhatPeopleType(typed: String) {
        #expect(JoinCode(typed: typed)?.text == "7K3M9QXW2D")
    }

    @Test func readsConfusedLetters() { #expect(JoinCode(typed: "oO0iI-lL1ab")?.text == "00011111AB") }

    @Test(arguments: ["", "7K3M9QXW2", "7K3M9QXW2DD", "7K3M9QXW2U", "7K3M9QXW2_", "7K3M9QXW2Ö", "ßK3M9QXW2"])
    func refusesOtherText(typed: String) { #expect(JoinCode(typed: typed) == nil) }

    @Test func showsTwoGroups() {
        #expect(JoinCode(typed: "7K3M9QXW2D")?.display == "7K3M9-QXW2D")
        for code in (0..<100).map({ _ in JoinCode.random() }) { #expect(JoinCode(typed: code.display) == code) }
    }

    @Test func takesCodesOfTheApp() {
        #expect(JoinCode(custom: "my-Code!")?.text == "my-Code!")
        for text in ["abc", String(repeating: "a", count: 65), "with space", "schön", "tab\there"] {
            #expect(JoinCode(custom: text) == nil)
        }
    }
}

struct HandleTests {
    private struct Vector: Decodable {
        let op: String?
        let key: String?
        let kind: String?
        let slot: UInt8?
        let id: String?
        let output: String?

        private enum CodingKeys: CodingKey { case op, key, kind, slot, id, output }

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            op = try? container.decode(String.self, forKey: .op)
            key = try? container.decode(String.self, forKey: .key)
            kind = try? container.decode(String.self, forKey: .kind)
            slot = try? container.decode(UInt8.self, forKey: .slot)
            id = try? container.decode(String.self, forKey: .id)
            output = try? container.decode(String.self, forKey: .output)
        }
    }

    private struct File: Decodable { let cases: [Vector] }

    @Test func agreesWithTheRepositorysVectors() throws {
        let data = try Data(contentsOf: repository.appending(path: "Tests/Vectors/sealing.json"))
        let vectors = try JSONDecoder().decode(File.self, from: data).cases.filter { $0.op == "make_handle" }
        #expect(vectors.count >= 2)
        for vector in vectors {
            let id = String(decoding: try #require(Data(hex: vector.id)), as: UTF8.self)
            let handle = Handle.make(
                key: try #require(Data(hex: vector.key)), kind: try #require(vector.kind), slot: try #require(vector.slot), id: id
            )
            #expect(handle == Data(hex: vector.output)?.base64URL)
        }
    }

    /// From `handle` of docs/rooms.md and docs/companion.md in Python.
    @Test func agreesWithTheGuides() throws {
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
        let room = try Room.sample(roomID: key, side: .joiner)
        #expect(room.handle == "uQCg40oLF2oDiJw40pqPDQ")
        let registration = try JSONDecoder().decode(
            Registration.self,
            from: Data(
                #"""
                {"tokenId":"tok_AAECAwQFBgcICQoLDA0ODw","ref":"00112233445566778899aabbccddeeff","expiresAt":0,"handleKey":"\#(key)"}
                """#.utf8))
        #expect(registration.handle(.session, "s-1") == "-ru59yMXBPQzsWDuWg-KuQ")
        #expect(registration.handle(.printer, "p1s_01") == "ScN8uU-27eedUJbxosTqzw")
        #expect(registration.handle(.uid, "älice") == "xH4o38UyfhgrcV39sXS_fg")
    }

    @Test func findsTheRoomOfAPush() throws {
        let rooms = try (0..<5).map { (room: try Room.sample(roomID: Secret.random(bytes: 32).value), nickname: "n\($0)") }
        let payload: [AnyHashable: Any] = ["aps": ["alert": ["body": "x"]], "roomId": rooms[3].room.handle!]
        let found = try #require(RoomNotification(payload: payload, rooms: rooms))
        #expect(found.nickname == "n3")
        #expect(found.room == rooms[3].room)
        #expect(found.threadIdentifier == rooms[3].room.handle)
        #expect(RoomNotification(payload: ["roomId": "AAAAAAAAAAAAAAAAAAAAAA"], rooms: rooms) == nil)
        #expect(RoomNotification(payload: ["roomId": 7], rooms: rooms) == nil)
        #expect(RoomNotification(payload: [:], rooms: rooms) == nil)
        // The other side's handle is another one.
        let other = try Room.sample(roomID: rooms[3].room.roomID.value, side: .joiner)
        #expect(RoomNotification(payload: payload, rooms: [(other, "n")]) == nil)
    }
}

extension Data {
    init?(hex: String?) {
        guard let digits = hex?.compactMap({ $0.hexDigitValue }), digits.count % 2 == 0 else { return nil }
        self.init(stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) })
    }
}

extension Room {
    static func sample(
        roomID: String = Secret.random(bytes: 32).value, member: String = Secret.random(bytes: 32).value,
        clientID: String = Secret.random(bytes: 16).value, side: Side = .creator
    ) throws -> Room {
        let json = """
            {"roomID":"\(roomID)","member":"\(member)","clientID":"\(clientID)","side":\(side.rawValue),"ref":"\(clientID)-ref","expiresAt":0}
            """
        return try JSONDecoder().decode(Room.self, from: Data(json.utf8))
    }
}

struct ErrorCodeTests {
    /// Each code of the API has a case here, and no case is left over.
    @Test func codesAreThoseOfTheAPI() throws {
        let text = try String(contentsOf: repository.appending(path: "docs/openapi.yaml"), encoding: .utf8)
        let problem = try #require(text.range(of: "\n    Problem:\n"))
        let list = try #require(text.range(of: "\n          enum:\n", range: problem.upperBound..<text.endIndex))
        var codes: Set<String> = []
        for line in text[list.upperBound...].split(separator: "\n") {
            let word = line.trimmingCharacters(in: .whitespaces)
            if word.hasPrefix("#") { continue }
            guard word.hasPrefix("- ") else { break }
            codes.insert(String(word.dropFirst(2)))
        }
        #expect(codes == Set(ErrorCode.known.keys))
        #expect(Set(ErrorCode.known.values).count == codes.count)
    }

    @Test func kindsDiffer() {
        #expect(ErrorCode("room_not_found").kind == .gone)
        #expect(ErrorCode("out_of_range").kind == .invalid)
        #expect(ErrorCode("overloaded").kind == .exhausted)
        #expect(ErrorCode("jwt_keys_unavailable").kind == .exhausted)
        #expect(ErrorCode("member_required").kind == .unauthorized)
        #expect(ErrorCode("join_code_in_use").kind == .conflict)
        let later = ErrorCode("of_a_later_broker")
        #expect(later == .unknown("of_a_later_broker"))
        #expect(Refusal(code: later, detail: "", field: nil, retryAfter: nil).kind == .invalid)
        #expect(Refusal(code: later, detail: "", field: nil, retryAfter: .seconds(1)).kind == .exhausted)
    }
}
