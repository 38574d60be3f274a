import FoundationEssentials
import Testing
import Vocabulary

@testable import Ledger

/// Compares `audit/entry.schema.json` with the encoder.
@Suite struct SchemaTests {
    struct Schema: Decodable {
        var oneOf: [Event]
        var defs: [String: Value]

        enum CodingKeys: String, CodingKey {
            case oneOf
            case defs = "$defs"
        }
    }

    struct Event: Decodable {
        var properties: [String: Value]
        var required: [String]
        var additionalProperties: Bool
    }

    struct Value: Decodable {
        var const: String?
        var values: [String]?
        var pattern: String?
        var maximum: UInt64?
        var reference: String?

        enum CodingKeys: String, CodingKey {
            case const, pattern, maximum
            case values = "enum"
            case reference = "$ref"
        }
    }

    enum JSON: Decodable {
        case text(String)
        case number(UInt64)

        init(from decoder: any Decoder) throws {
            let value = try decoder.singleValueContainer()
            self =
                if let number = try? value.decode(UInt64.self) { .number(number) } else { .text(try value.decode(String.self)) }
        }
    }

    static let schema: Schema = {
        let data = try! Data(contentsOf: URL(filePath: Vectors.root + "/audit/entry.schema.json"))
        return try! JSONDecoder().decode(Schema.self, from: data)
    }()

    static func allows(_ value: Value, _ json: JSON) throws -> Bool {
        if let name = value.reference?.split(separator: "/").last {
            return try allows(try #require(schema.defs[String(name)]), json)
        }
        switch json {
        case .number(let number): return try number <= #require(value.maximum)
        case .text(let text):
            if let const = value.const { return text == const }
            if let values = value.values { return values.contains(text) }
            return try text.wholeMatch(of: Regex(#require(value.pattern))) != nil
        }
    }

    /// Returns the number of the schema's events that an entry matches.
    static func matches(_ json: [UInt8]) throws -> Int {
        let object = try JSONDecoder().decode([String: JSON].self, from: Data(json))
        return try schema.oneOf.filter { event in
            try event.required.sorted() == object.keys.sorted()
                && object.allSatisfy { key, json in
                    try event.properties[key].map { try allows($0, json) } ?? event.additionalProperties
                }
        }.count
    }

    // Promise: entry-schema
    @Test func everyEntryMatchesOneEvent() throws {
        for (op, _) in EntryTests.each { #expect(try Self.matches(Entry(atMs: EntryTests.at, op).encoded) == 1) }
        for entry in HonestBroker.story(seed: 1) { #expect(try Self.matches(entry.encoded) == 1) }
        #expect(try Self.matches(bytes(EntryTests.sealed.replacing("sealed", with: "copied"))) == 0)
        #expect(try Self.matches(bytes(EntryTests.sealed.replacing("0f\"", with: "0F\""))) == 0)
    }

    @Test func listsMatchTheSchema() throws {
        let ops = OpName.allCases.map { String(decoding: $0.name, as: UTF8.self) }
        #expect(Set(Self.schema.oneOf.compactMap { $0.properties["op"]?.const }) == Set(ops))
        func values(_ op: String, _ key: String) -> [String] {
            let fields = Self.schema.oneOf.filter { $0.properties["op"]?.const == op }.compactMap { $0.properties[key] }
            return fields.flatMap { ($0.values ?? []) + [$0.const].compactMap(\.self) }.sorted()
        }
        #expect(values("token.purged", "cause") == PurgeCause.names.sorted())
        #expect(values("request.refused", "cause") == Entry.RefusalCause.allCases.map(\.rawValue).sorted())
        #expect(values("push.failed", "reason") == PushReason.allRecorded.map(\.rawValue).sorted())
        #expect(Self.schema.oneOf.allSatisfy { !$0.additionalProperties && $0.required.sorted() == $0.properties.keys.sorted() })
    }

    @Test func namesMatchTheSchema() throws {
        let pattern = try Regex(#require(Self.schema.defs["name"]?.pattern))
        for byte in UInt8(0)...127 {
            let text = String(decoding: [byte], as: UTF8.self)
            #expect((try pattern.wholeMatch(in: text) != nil) == (EntryText(text) != nil), "byte \(byte)")
        }
    }
}
