import Sodium
public import Vocabulary

/// An approved push. Everything that can be said in it stands here; see `Field` for the little that varies.
public struct Template: Sendable {
    public let name: String
    public let pushType: PushType
    /// `apns-priority`.
    public let priority: Int
    /// How long the push is worth delivering. 0: one attempt, nothing stored at Apple.
    public let ttlSeconds: Int
    /// What is shown, before fields are put in: each text under its key in `aps.alert`.
    public let texts: [(key: String, text: String)]
    public let fields: [Field]
    /// Payload keys where a time stands, and how many seconds after the event it is.
    public let times: [(key: [String], seconds: Int)]
    /// Where the handle stands in the payload; nil when it is the collapse id only.
    public let handleKey: [String]?
    /// When its pushes leave.
    public let timing: SendTiming
    /// What its policy's limits come to for its jobs.
    public let jobs: JobLimits
    /// Bytes of the largest payload this template can make.
    public let worstCasePayload: Int

    let pieces: [Piece]

    /// Whether a payload says when its event was: a Live Activity's, and one with `times`.
    public var carriesTime: Bool { pieces.carryTime }

    /// `apns-expiration` in unix seconds: never later than the token's own expiry, and 0 for a single attempt.
    /// - Parameter nowMs: from when on the push is worth delivering. Apple learns it, to the second.
    public func expiration(nowMs: UInt64, tokenExpiryMs: UInt64) -> UInt64 {
        ttlSeconds == 0 ? 0 : min(nowMs + UInt64(ttlSeconds) * 1000, tokenExpiryMs) / 1000
    }

    /// Writes the payload: canonical JSON, keys sorted.
    ///
    /// - Parameters:
    ///   - handle: what the push is collapsed by.
    ///   - fields: a value for each of the template's fields, and for nothing else.
    ///   - nowMs: when the event was, in unix milliseconds; needed where `carriesTime`.
    /// - Throws: `RenderError`; nothing is rendered in part.
    public func render(handle: Handle, fields values: [String: FieldValue] = [:], nowMs: UInt64 = 0) throws(RenderError)
        -> RenderedPush
    {
        // Only names the template has are looked up below, so the count finds the rest.
        guard values.count <= fields.count else { throw .unknownField }
        var payload: [UInt8] = []
        payload.reserveCapacity(worstCasePayload)
        var checked: [Checked] = []
        if !fields.isEmpty {
            checked.reserveCapacity(fields.count)
            for field in fields {
                guard let value = values[field.name] else { throw .missingField(field.name) }
                checked.append(try field.check(value))
            }
        }
        for piece in pieces {
            switch piece {
            case .bytes(let bytes): payload += bytes
            case .handle: appendHandle(handle, to: &payload)
            case .time(let seconds):
                guard nowMs > 0 else { throw .timeMissing }
                payload += String(nowMs / 1000 + UInt64(seconds)).utf8
            case .field(let index, let words):
                switch checked[index] {
                case .handle(let handle): appendHandle(handle, to: &payload)
                case .word(let word): payload += words[word]
                case .number(let number): payload += String(number).utf8
                case .flag(let flag): payload += (flag ? "true" : "false").utf8
                }
            }
        }
        return RenderedPush(payload: payload, pushType: pushType, priority: priority, ttlSeconds: ttlSeconds)
    }
}

/// A push ready to be sent, but for its token.
public struct RenderedPush: Sendable, Equatable {
    /// JSON in UTF-8.
    public let payload: [UInt8]
    public let pushType: PushType
    public let priority: Int
    public let ttlSeconds: Int
}

/// Why a template could not be filled. Values never appear here.
public enum RenderError: Error, Sendable, Equatable, CustomStringConvertible {
    case unknownTemplate
    case missingField(String)
    case unknownField
    case wrongKind(String)
    case notListed(String)
    case outOfRange(String)
    case timeMissing

    public var description: String {
        switch self {
        case .unknownTemplate: "The policy has no template with that name. Use one that `mayfly policy show` lists."
        case .missingField(let name): "The template's field \(name) has no value. Provide a value for each field."
        case .unknownField: "The template doesn't have one of the given fields. Use only the template's fields."
        case .wrongKind(let name):
            "The value for field \(name) has the wrong kind. Use the kind from the policy."
        case .notListed(let name): "The value for field \(name) is not listed in the policy. Use one of the listed words."
        case .outOfRange(let name):
            "The value for field \(name) is outside its range or between its steps. Use one that the policy allows."
        case .timeMissing: "The template's payload needs a time, but none was given. Provide the event's time in milliseconds."
        }
    }
}

/// A handle's characters in base64url without padding.
let handleCharacters = 22

/// A payload cut at the places where something varies.
enum Piece: Sendable, Equatable {
    case bytes([UInt8])
    /// 22 characters, its quotes being part of the bytes around it.
    case handle
    /// Unix seconds, so many after the event.
    case time(afterSeconds: Int)
    /// The value of the field at `index`; an enum's words are ready to be copied.
    case field(index: Int, words: [[UInt8]])
}

extension [Piece] {
    var carryTime: Bool {
        contains { if case .time = $0 { true } else { false } }
    }
}

/// A field's value once it is known to be allowed.
enum Checked {
    case handle(Handle)
    /// Index into the enum's words.
    case word(Int)
    case number(Int)
    case flag(Bool)
}

extension Field {
    func check(_ value: FieldValue) throws(RenderError) -> Checked {
        switch (kind, value) {
        case (.handle, .handle(let handle)): return .handle(handle)
        case (.oneOf(let words), .choice(let word)):
            guard let index = words.firstIndex(where: { $0.utf8.elementsEqual(word.utf8) }) else { throw .notListed(name) }
            return .word(index)
        case (.number(let range, let step), .number(let number)):
            guard range.contains(number), (number - range.lowerBound) % step == 0 else { throw .outOfRange(name) }
            return .number(number)
        case (.flag, .flag(let flag)): return .flag(flag)
        default: throw .wrongKind(name)
        }
    }
}

private func appendHandle(_ handle: Handle, to payload: inout [UInt8]) {
    var characters = InlineArray<22, UInt8>(repeating: 0)
    var span = characters.mutableSpan
    handle.withBytes { Base64.url.encode($0, into: &span) }
    for index in characters.indices { payload.append(characters[index]) }
}
