import FoundationEssentials
import JSON
import Testing
import Vocabulary

@testable import Policy

/// The schema of policies matches the reader.
@Suite struct SchemaTests {
    private let schema: JSONValue

    init() throws {
        let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../policies/policy.schema.json")
        schema = try Self.read(Array(Data(contentsOf: file)))
    }

    private static func read(_ bytes: [UInt8]) throws -> JSONValue { try JSONValue(bytes.span, deepest: Policy.deepest) }

    /// A built-in policy for each kind of limits, their name in the schema, and the number of bounds.
    private static let limits = [
        ("rooms", "roomsLimits", 29), ("companion", "companionLimits", 13), ("monitor", "monitorLimits", 8),
        ("calls", "callsLimits", 8),
    ]

    @Test(arguments: limits) func boundsOfLimitsMatchTheSchema(_ name: String, _ definition: String, _ count: Int) throws {
        let base = try Self.read(try #require(Policy.builtInBytes(name)))
        let bounds = integers(in: try #require(schema["$defs"]?[definition]), at: ["limits"])
        #expect(bounds.count == count)
        try agree(bounds, base)
    }

    @Test func boundsOfTimingMatchTheSchema() throws {
        let bounds = integers(in: try #require(schema["properties"]?["ledger"]), at: ["ledger"])
        #expect(bounds.count == 3)
        try agree(bounds, Self.read(try #require(Policy.builtInBytes("rooms"))))
    }

    private func agree(_ bounds: [([String], ClosedRange<Int>)], _ base: JSONValue) throws {
        for (path, range) in bounds {
            for (value, allowed) in [
                (range.lowerBound, true), (range.upperBound, true), (range.lowerBound - 1, false), (range.upperBound + 1, false),
            ] {
                var bytes: [UInt8] = []
                base.setting(.number(String(value)), at: path[...]).append(to: &bytes)
                let refused = Policy.lint(bytes).contains {
                    $0.path == "$." + path.joined(separator: ".")
                        && $0.problem.contains("outside \(range.lowerBound) to \(range.upperBound)")
                }
                #expect(refused != allowed, "\(path.joined(separator: ".")) = \(value)")
            }
        }
    }

    @Test(arguments: limits) func requiredLimitsMatchTheSchema(_ name: String, _ definition: String, _: Int) throws {
        let base = try Self.read(try #require(Policy.builtInBytes(name)))
        let members = self.members(of: try #require(schema["$defs"]?[definition]), at: ["limits"])
        #expect(members.contains { $0.isRequired })
        for (path, isRequired) in members {
            var bytes: [UInt8] = []
            base.removing(path[...]).append(to: &bytes)
            let isMissed = Policy.lint(bytes).contains {
                $0.path == "$." + path.joined(separator: ".") && $0.problem == "is missing"
            }
            #expect(isMissed == isRequired, "\(path.joined(separator: "."))")
        }
    }

    /// All members of an object in the schema and of the objects in it.
    private func members(of value: JSONValue, at path: [String]) -> [(path: [String], isRequired: Bool)] {
        guard case .array(let required)? = value["required"] else { return [] }
        return (value["properties"]?.keys ?? []).flatMap { key in
            let inner = value["properties"]?[key].map { members(of: $0, at: path + [key]) } ?? []
            return [(path + [key], required.contains(.string(key)))] + inner
        }
    }

    // Promise: schema-is-the-readers
    @Test func keysMatchTheSchema() throws {
        let template = try #require(schema["$defs"]?["template"]?["properties"])
        #expect(
            Set(template.keys) == Set(TemplateReader.commonKeys + TemplateReader.alertKeys + TemplateReader.liveActivityKeys))
        let web = try #require(template["web"]?["properties"])
        #expect(Set(web.keys) == Set(TemplateReader.webKeys))
        #expect(template["web"]?["additionalProperties"] == .bool(false))
        #expect(template["pushType"]?["enum"] == .array(PushType.allCases.map { .string($0.rawValue) }))
        #expect(template["interruption-level"]?["enum"] == .array(TemplateReader.interruptionLevels.map { .string($0) }))
        #expect(schema["properties"]?["kind"]?["enum"] == .array(Policy.Kind.allCases.map { .string($0.rawValue) }))
        for kind in Policy.Kind.allCases where kind != .rooms {
            let limits = try #require(schema["$defs"]?["\(kind.rawValue)Limits"]?["properties"])
            #expect(Set(limits.keys) == Set(LimitValues.names(kind.limitRows)))
        }
    }

    /// The numbers in templates, each in a template that may have it.
    @Test(
        arguments: [
            ("badge", #""pushType":"alert","body":"x""#), ("staleSeconds", #""pushType":"liveactivity","event":"update""#),
            ("dismissSeconds", #""pushType":"liveactivity","event":"end""#), ("times", #""pushType":"alert","body":"x""#),
        ])
    func boundsOfTemplatesMatchTheSchema(_ key: String, _ others: String) throws {
        let property = try #require(schema["$defs"]?["template"]?["properties"]?[key])
        let bounded = property["additionalProperties"] ?? property
        let (low, high) = (try #require(bounded["minimum"]?.int), try #require(bounded["maximum"]?.int))
        for (value, allowed) in [(low, true), (high, true), (low - 1, false), (high + 1, false)] {
            let text = key == "times" ? "{\"at\":\(value)}" : String(value)
            let findings = Policy.lint(try rooms(template: "{\(others),\"priority\":10,\"ttlSeconds\":60,\"\(key)\":\(text)}"))
            #expect(findings.isEmpty == allowed, "\(value): \(findings)")
        }
    }

    /// All integers with bounds in the schema. References are followed.
    private func integers(in value: JSONValue, at path: [String]) -> [([String], ClosedRange<Int>)] {
        if case .string(let reference)? = value["$ref"], let name = reference.split(separator: "/").last {
            return schema["$defs"]?[String(name)].map { integers(in: $0, at: path) } ?? []
        }
        if value["type"] == .string("integer"), let low = value["minimum"]?.int, let high = value["maximum"]?.int {
            return [(path, low...high)]
        }
        return (value["properties"]?.keys ?? []).flatMap { key in
            value["properties"]?[key].map { integers(in: $0, at: path + [key]) } ?? []
        }
    }
}

extension JSONValue {
    fileprivate subscript(key: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.key == key }?.value
    }

    fileprivate var keys: [String] {
        guard case .object(let members) = self else { return [] }
        return members.map(\.key)
    }

    fileprivate func removing(_ path: ArraySlice<String>) -> JSONValue {
        guard case .object(let members) = self, let key = path.first else { return self }
        return .object(
            members.compactMap { member in
                if member.key != key { return member }
                return path.count == 1 ? nil : JSONMember(key: key, value: member.value.removing(path.dropFirst()))
            })
    }

    fileprivate func setting(_ value: JSONValue, at path: ArraySlice<String>) -> JSONValue {
        guard let key = path.first else { return value }
        let changed = JSONMember(key: key, value: (self[key] ?? .object([])).setting(value, at: path.dropFirst()))
        guard case .object(let members) = self else { return self }
        return .object(members.filter { $0.key != key } + [changed])
    }
}
