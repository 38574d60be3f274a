import JSON
public import Vocabulary

/// A placeholder in a template. There are four kinds. None can hold free text, so text that someone wrote can't get into a push.
public struct Field: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        /// 16 bytes that only the receiver's device understands.
        case handle
        /// One of the listed words.
        case oneOf([String])
        /// A number from `range.lowerBound` to `range.upperBound`, in steps.
        case number(range: ClosedRange<Int>, step: Int)
        case flag

        /// The name in a policy file.
        var name: String {
            switch self {
            case .handle: "handle"
            case .oneOf: "enum"
            case .number: "number"
            case .flag: "flag"
            }
        }
    }

    public let name: String
    public let kind: Kind
    /// The path of the value in the payload, outermost key first. Nil if only a text uses the field.
    public let key: [String]?

    fileprivate static let kindNames = ["handle", "enum", "number", "flag"]
}

/// The value of a field in a push.
public enum FieldValue: Sendable, Equatable {
    /// 16 bytes, written as base64url without padding.
    case handle(Handle)
    /// One of an enum field's words. The payload gets the policy's copy of it.
    case choice(String)
    case number(Int)
    case flag(Bool)
}

/// Reads a template's `fields`, and the dotted keys that are paths in the payload.
struct FieldReader {
    let findings: Findings

    /// - Returns: the valid fields, sorted by name.
    func read(_ value: JSONValue?, at path: JSONPath) -> [Field] {
        guard let value else { return [] }
        guard case .object(let members) = value else {
            findings.wrongType(path, value, wanted: "an object")
            return []
        }
        return members.compactMap { field($0.key, $0.value, at: path.member($0.key)) }.sorted { $0.name < $1.name }
    }

    private func field(_ name: String, _ value: JSONValue, at path: JSONPath) -> Field? {
        guard Self.isName(name) else {
            findings.add(
                path, "is not a valid field name",
                why: "texts refer to a field as {name}, so it must differ from the words around it",
                do: "use 1 to 64 letters and digits, beginning with a lower-case letter")
            return nil
        }
        guard case .object(let members) = value else {
            findings.wrongType(path, value, wanted: "an object")
            return nil
        }
        let kindPath = path.member("kind")
        guard case .string(let kindName)? = members.first(where: { $0.key == "kind" })?.value, Field.kindNames.contains(kindName)
        else {
            findings.add(
                kindPath, "is not one of \(Field.kindNames.joined(separator: ", "))",
                why:
                    "a field of any other kind could carry free text, and Apple and the phone's notification store would keep it",
                do: "use listed words (enum), a bounded number (number), true or false (flag) or 16 opaque bytes (handle)")
            return nil
        }
        let own: [String] =
            switch kindName {
            case "enum": ["values"]
            case "number": ["min", "max", "step"]
            default: []
            }
        guard let object = ObjectReader(value, at: path, known: ["kind", "key"] + own, findings) else { return nil }
        let key = object.has("key") ? object.string("key").flatMap { self.key($0, at: path.member("key")) } : nil
        if object.has("key"), key == nil { return nil }
        let kind: Field.Kind? =
            switch kindName {
            case "enum": words(object["values"], at: path.member("values"))
            case "number": number(object)
            case "flag": .flag
            default: .handle
            }
        return kind.map { Field(name: name, kind: $0, key: key) }
    }

    /// Splits `printerState.progress` into its keys.
    func key(_ text: String, at path: JSONPath) -> [String]? {
        let keys = text.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        guard keys.count <= 8, keys.allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f } }) else {
            findings.add(
                path, "is not a valid payload key", why: "the app could not find the value",
                do: "use one to eight keys in visible ASCII, separated by dots")
            return nil
        }
        guard keys[0] != "aps" else {
            findings.add(
                path, "reaches into aps", why: "aps is Apple's, and only the template's own keys write to it",
                do: "use a key beside aps")
            return nil
        }
        return keys
    }

    private func words(_ value: JSONValue?, at path: JSONPath) -> Field.Kind? {
        guard case .array(let items)? = value, (1...256).contains(items.count) else {
            findings.add(
                path, "is not a list of 1 to 256 words", why: "an enum field can only have the values listed here",
                do: "list every word the field may have")
            return nil
        }
        var words: [String] = []
        for (index, item) in items.enumerated() {
            guard case .string(let word) = item, (1...64).contains(word.utf8.count), !word.hasControlCharacter else {
                findings.add(
                    path.item(index), "is not a word of 1 to 64 bytes without control characters",
                    why: "longer text belongs in the template", do: "use a short word")
                return nil
            }
            guard !words.contains(word) else {
                findings.add(
                    path.item(index), "is in the list twice", why: "duplicates are ambiguous", do: "remove one of them")
                return nil
            }
            words.append(word)
        }
        return .oneOf(words)
    }

    private func number(_ object: ObjectReader) -> Field.Kind? {
        let exact = 1 << 53
        let why = "JavaScript and other JSON readers can't represent larger whole numbers exactly"
        let low = object.int("min", in: -exact...exact, why: why)
        let high = object.int("max", in: -exact...exact, why: why)
        let step = object.int("step", in: 1...exact, why: "a step must be positive")
        guard let low, let high, let step else { return nil }
        guard low < high else {
            findings.add(
                object.path.member("min"), "is not less than max", why: "a field with a single value should be a constant",
                do: "make it less than \(high)")
            return nil
        }
        guard (high - low) % step == 0 else {
            findings.add(
                object.path.member("step"), "never reaches max from min", why: "max itself would not be allowed",
                do: "choose a step that divides \(high - low)")
            return nil
        }
        guard (high - low) / step < 10_000 else {
            findings.add(
                object.path.member("step"), "allows more than 10,000 values",
                why: "such a fine number could identify a person or encode a word", do: "choose a narrower range or a wider step")
            return nil
        }
        return .number(range: low...high, step: step)
    }

    static func isName(_ name: String) -> Bool {
        guard let first = name.utf8.first, (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(first), name.utf8.count <= 64 else {
            return false
        }
        return name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: false
            }
        }
    }
}

extension String {
    /// True if the text has a C0 or C1 control or DEL, which a notification can't show.
    var hasControlCharacter: Bool {
        unicodeScalars.contains { $0.value < 0x20 || (0x7f...0x9f).contains($0.value) }
    }
}
