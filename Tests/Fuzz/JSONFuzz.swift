import FoundationEssentials
import HTTP1
import HTTPServer
import JSON
import Sealing

@testable import API
@testable import Courier
@testable import Policy

/// Compares our JSON parser with the simulator's and Foundation's, and parses request bodies.
enum JSONFuzz {
    static func run(_ input: [UInt8]) {
        let value = try? JSONValue(input.span, deepest: deepest)
        // The parsers count nesting differently, so compare only far from the limits.
        if input.count(where: { $0 == UInt8(ascii: "{") || $0 == UInt8(ascii: "[") }) < deepest {
            let second = SecondReader.read(input)
            require(value.flatMap { hasDistinctNames($0) ? SecondValue($0) : nil } == second, "both readers say the same")
        }
        if let value { requireOneForm(value) }
        let object = JSONObject(input.span)
        switch value {
        case .object(let members)?:
            guard let object else { fatalError("every object is read") }
            check(object, members, input)
        case _?: require(object == nil, "nothing but objects is read")
        // A body may also have lone surrogates and any depth where it isn't read.
        case nil: require(object == nil || FoundationValue.mayRefuse(input), "nothing but JSON is read")
        }
        readBody(input)
        _ = Answer(status: 410, body: input)
    }

    private static let deepest = 60

    private static func hasDistinctNames(_ value: JSONValue) -> Bool {
        switch value {
        case .array(let items): items.allSatisfy(hasDistinctNames)
        case .object(let members):
            Set(members.map(\.key)).count == members.count && members.allSatisfy { hasDistinctNames($0.value) }
        default: true
        }
    }

    private static func requireOneForm(_ value: JSONValue) {
        var (written, again): ([UInt8], [UInt8]) = ([], [])
        value.append(to: &written)
        guard let read = try? JSONValue(written.span, deepest: deepest) else { fatalError("what is written can be read") }
        read.append(to: &again)
        require(again == written, "one way of writing")
    }

    private static func check(_ object: JSONObject, _ members: [JSONMember], _ input: [UInt8]) {
        var names: [[UInt8]] = []
        object.readNames(in: input.span) { name in
            names.append(name.indices.map { name[$0] })
            return true
        }
        require(names == members.map { Array($0.key.utf8) }, "the same names")
        guard let third = try? JSONDecoder().decode([String: FoundationValue].self, from: Data(input)) else {
            fatalError("Foundation reads it too")
        }
        require(third.count <= members.count, "no more members")
        for name in ["a", "b", "token", "joinid", "ttl"] {
            let named = members.filter { $0.key.utf8.elementsEqual(name.utf8) }
            guard let member = named.first else { continue }
            let bytes = try? object.bytes(name, in: input.span)
            let number = try? object.integer(name, in: input.span)
            let flag = try? object.bool(name, in: input.span)
            if named.count > 1 {
                require(bytes == nil && number == nil && flag == nil, "no value that another parser may read differently")
                continue
            }
            switch member.value {
            case .string(let text):
                require(bytes == Array(text.utf8) && number == nil && flag == nil, "the same text")
                if case .string(let theirs)? = third[name] {
                    require(Array(theirs.utf8) == bytes, "the same text as Foundation's")
                } else {
                    fatalError("a text for Foundation too")
                }
                if let range = try? object.plainString(name, in: input.span) {
                    require(Array(input[range]) == bytes, "plain text")
                }
            case .number:
                // The smallest Int has no positive counterpart and is refused.
                require(number == member.value.int || member.value.int == .min, "the same number")
                require(bytes == nil && flag == nil, "nothing but a number")
            case .bool(let value): require(flag == value && bytes == nil && number == nil, "the same truth value")
            default: require(bytes == nil && number == nil && flag == nil, "no value of another type")
            }
        }
    }

    private static func readBody(_ input: [UInt8]) {
        guard let body = try? RequestBody(of: HTTPRequest(method: .post, target: "/", body: input)) else { return }
        if let code = body.joinid(limits) { require((limits.shortestCode...64).contains(code.count), "a join code") }
        if let client = body.name("client") { require((1...128).contains(client.count), "a client") }
        if let seconds = body.seconds("ttl", 1...60) { require((1...60).contains(seconds), "seconds in their range") }
        _ = body.choice("a")
        if let token = body.token("voip") { require((1...100).contains(token.count), "a token") }
        _ = body.member()
        _ = body.room()
        _ = body.environment()
        _ = body.text("template")
        _ = body.dropped
    }

    private static let limits: Limits = {
        guard let policy = try? Policy.builtIn("rooms"), case .rooms(let limits) = policy.limits else {
            fatalError("the built-in policy")
        }
        return limits
    }()
}

/// Any JSON value as Foundation parses it. Numbers are not compared.
enum FoundationValue: Decodable {
    case null, number
    case string(String)
    case bool(Bool)
    case array([FoundationValue])
    case object([String: FoundationValue])

    /// Whether Foundation may refuse a text that the broker reads in part: one with escapes or deep nesting.
    static func mayRefuse(_ text: [UInt8]) -> Bool {
        text.contains(UInt8(ascii: "\\")) || text.count(where: { $0 == UInt8(ascii: "{") || $0 == UInt8(ascii: "[") }) >= 60
    }

    init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if value.decodeNil() {
            self = .null
        } else if let flag = try? value.decode(Bool.self) {
            self = .bool(flag)
        } else if let text = try? value.decode(String.self) {
            self = .string(text)
        } else {
            // If Foundation refuses an element or member, it refuses the whole text.
            do { self = .array(try value.decode([FoundationValue].self)) } catch DecodingError.typeMismatch {
                do { self = .object(try value.decode([String: FoundationValue].self)) } catch DecodingError.typeMismatch {
                    self = .number
                }
            }
        }
    }
}

extension SecondValue {
    fileprivate init(_ value: JSONValue) {
        self =
            switch value {
            case .null: .null
            case .bool(let flag): .bool(flag)
            case .number(let spelling): .number(Double(spelling) ?? .nan)
            case .string(let text): .string(text)
            case .array(let items): .array(items.map { SecondValue($0) })
            case .object(let members):
                .object(Dictionary(members.map { ($0.key, SecondValue($0.value)) }, uniquingKeysWith: { $1 }))
            }
    }
}

/// Lint reports a problem for every policy file that is refused.
enum PolicyFuzz {
    static func run(_ input: [UInt8]) {
        require(Policy.lint(input).isEmpty == ((try? Policy(input)) != nil), "lint finds why a file is refused")
    }
}
