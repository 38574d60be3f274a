import JSON
import Sodium
public import Vocabulary

/// An approved push. Only its fields vary.
public struct Template: Sendable {
    public let name: String
    public let pushType: PushType
    /// `apns-priority`.
    public let priority: Int
    /// How long Apple may store the push. 0 for one attempt without storing.
    public let ttlSeconds: Int
    /// The texts with placeholders, each with its key in `aps.alert`.
    public let texts: [(key: String, text: String)]
    public let fields: [Field]
    /// The payload paths of times, each with its offset from the event in seconds.
    public let times: [(key: [String], seconds: Int)]
    /// The payload path of the handle. Nil if the handle is only the collapse id.
    public let handleKey: [String]?
    public let timing: SendTiming
    public let jobs: JobLimits
    /// The size of the largest possible payload in bytes.
    public let worstCasePayload: Int
    /// The notification in browsers. Nil if this template sends browsers nothing.
    public let web: WebTemplate?

    let pieces: [Piece]

    /// Returns `apns-expiration` in unix seconds. It is never later than the token's expiry, and 0 for a single attempt.
    /// - Parameter nowMs: the start of the push's life. Apple can compute it, to the second.
    public func expiration(nowMs: UInt64, tokenExpiryMs: UInt64) -> UInt64 {
        ttlSeconds == 0 ? 0 : min(nowMs + UInt64(ttlSeconds) * 1000, tokenExpiryMs) / 1000
    }

    /// True if the push is sent over Web Push.
    public var reachesBrowsers: Bool { web != nil }

    /// Renders the payload as canonical JSON with sorted keys.
    /// - Parameters:
    ///   - handle: the collapse id.
    ///   - fields: a value for each of the template's fields, and no others.
    ///   - nowMs: the time of the event in unix milliseconds. Required for Live Activities and `times`.
    /// - Throws: `RenderError` if a value is missing or invalid.
    public func render(handle: Handle, fields values: [String: FieldValue] = [:], nowMs: UInt64 = 0) throws(RenderError)
        -> RenderedPush
    {
        let payload = try fill(pieces, capacity: worstCasePayload, handle, values, nowMs: nowMs, origin: "")
        return RenderedPush(payload: payload, pushType: pushType, priority: priority, ttlSeconds: ttlSeconds)
    }

    /// Renders the message of a Web Push as canonical JSON with sorted keys.
    /// - Parameters:
    ///   - handle: the notification's tag.
    ///   - fields: as in `render`.
    ///   - nowMs: as in `render`.
    ///   - origin: the web app's origin without a final slash, `WebTemplate.longestOrigin` bytes at most. Never a caller's.
    /// - Returns: `WebTemplate.longestMessage` bytes at most. Nil if the push isn't sent over Web Push.
    /// - Throws: `RenderError` if a value is missing or invalid.
    public func renderWeb(handle: Handle, fields values: [String: FieldValue] = [:], nowMs: UInt64 = 0, origin: String)
        throws(RenderError) -> [UInt8]?
    {
        guard let web else { return nil }
        return try fill(web.pieces, capacity: web.worstCase, handle, values, nowMs: nowMs, origin: origin)
    }

    private func fill(
        _ pieces: [Piece], capacity: Int, _ handle: Handle, _ values: [String: FieldValue], nowMs: UInt64, origin: String
    ) throws(RenderError) -> [UInt8] {
        // The loop below finds missing fields. With the same count there are no extra ones.
        guard values.count <= fields.count else { throw .unknownField }
        var payload: [UInt8] = []
        payload.reserveCapacity(capacity)
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
            case .origin: JSONString.appendContents(origin, to: &payload)
            case .time(let seconds, let asText):
                guard nowMs > 0 else { throw .timeMissing }
                let time = nowMs / 1000 + UInt64(seconds)
                if asText { Timestamp.append(time * 1000, to: &payload) } else { payload += String(time).utf8 }
            case .field(let index, let words):
                switch checked[index] {
                case .handle(let handle): appendHandle(handle, to: &payload)
                case .word(let word): payload += words[word]
                case .number(let number): payload += String(number).utf8
                case .flag(let flag): payload += (flag ? "true" : "false").utf8
                }
            }
        }
        return payload
    }
}

/// A push that is complete except for its token.
public struct RenderedPush: Sendable, Equatable {
    /// JSON in UTF-8.
    public let payload: [UInt8]
    public let pushType: PushType
    public let priority: Int
    public let ttlSeconds: Int
}

/// Why a push could not be rendered. Never contains values.
public enum RenderError: Error, Sendable, Equatable, CustomStringConvertible {
    case missingField(String)
    case unknownField
    case wrongKind(String)
    case notListed(String)
    case outOfRange(String)
    case timeMissing

    public var description: String {
        switch self {
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

/// The length of a handle in base64url without padding.
let handleCharacters = 22

/// A part of a payload: constant bytes or a placeholder.
enum Piece: Sendable, Equatable {
    case bytes([UInt8])
    /// 22 characters. The quotes are in the bytes around it.
    case handle
    /// The web app's origin. The quotes are in the bytes around it.
    case origin
    /// The event's time plus an offset, in unix seconds or as text. The text's quotes are in the bytes around it.
    case time(afterSeconds: Int, asText: Bool)
    /// The value of the field at `index`. `words` are an enum's words in JSON.
    case field(index: Int, words: [[UInt8]])
}

extension [Piece] {
    var carryTime: Bool {
        contains { if case .time = $0 { true } else { false } }
    }
}

/// A field's checked value.
private enum Checked {
    case handle(Handle)
    /// An index into the enum's words.
    case word(Int)
    case number(Int)
    case flag(Bool)
}

extension Field {
    fileprivate func check(_ value: FieldValue) throws(RenderError) -> Checked {
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

/// When a push is sent, so that its time reveals little about the knock's. All times in ms.
///
/// Slots start at multiples of their length in unix time. A push waits for the start of the next slot, plus a random delay. Without slots,
/// there is only the delay. `docs/delivery.md` explains what this hides.
public struct SendTiming: Sendable, Equatable {
    /// 0 for no slots.
    public let slotMs: UInt64
    /// The exclusive bound of the random delay, which is uniform.
    public let jitterMs: UInt64

    public init(slotSeconds: Int?, jitterSeconds: Int?) {
        slotMs = UInt64(clamping: slotSeconds ?? 0) * 1_000
        jitterMs = UInt64(clamping: jitterSeconds ?? 0) * 1_000
    }

    /// True if pushes are sent at once, so that their time is the knock's.
    public var isAtOnce: Bool { slotMs + jitterMs == 0 }

    /// The longest time from a knock to its push.
    public var longestWaitMs: UInt64 { slotMs + jitterMs }

    /// How much a push's time hides. Given only this time, the knock's time is uniform over at least this part of the `longestWaitMs` before.
    /// With a span of n seconds, a guess at the knock's second is right at most once in n times.
    ///
    /// A jitter of up to a slot adds nothing, since the push can have waited for one boundary only.
    public var spanMs: UInt64 { slotMs == 0 ? jitterMs : slotMs * max(1, jitterMs / slotMs) }

    /// Returns the earliest time of the push for a knock, without jitter.
    public func boundary(after knock: UInt64) -> UInt64 {
        slotMs == 0 ? knock : (knock / slotMs + 1) * slotMs
    }

    /// Returns the time of the push with random jitter. Call it once per push.
    /// - Parameter draw: returns a uniform random number below its argument. Jitter is 60 s at most.
    public func departure(boundary: UInt64, draw: (UInt32) -> UInt32 = Sodium.random(below:)) -> UInt64 {
        jitterMs == 0 ? boundary : boundary + UInt64(draw(UInt32(clamping: jitterMs)))
    }

    /// Returns the new time of a push that missed `departure`. It is delayed by whole slots, which hides what it waited for (the disk, a start).
    public func departure(missed departure: UInt64, now: UInt64) -> UInt64 {
        slotMs == 0 || departure > now ? departure : departure + ((now - departure) / slotMs + 1) * slotMs
    }

    /// Returns the earliest next knock after a push at `departure`, so that the next push is at least `throttleMs` later. It is a boundary, since a
    /// time inside a slot would shorten that slot for the next knock.
    public func nextKnock(after departure: UInt64, throttleMs: UInt64) -> UInt64 {
        let earliest = departure + throttleMs
        return slotMs == 0 ? earliest : (earliest + slotMs - 1) / slotMs * slotMs - slotMs
    }
}
