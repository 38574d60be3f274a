import HTTP2
import Linux

/// A push the simulator accepted.
public struct AcceptedPush: Sendable, Equatable {
    /// Lower-case hex.
    public let token: String
    /// Without pseudo-header fields and `authorization`; `apns-id` also where the request had none.
    public let headers: [String: String]
    /// The body as it came: a JSON object.
    public let payload: [UInt8]
    /// Unix milliseconds.
    public let at: UInt64
}

extension AcceptedPush {
    init(_ entry: PushLog.Entry) {
        let request = entry.request
        var headers: [String: String] = [:]
        for (name, value) in request.texts where name != "authorization" && !name.hasPrefix(":") { headers[name] = value }
        if let id = entry.id { headers["apns-id"] = String(decoding: id, as: UTF8.self) }
        self.init(token: request.token, headers: headers, payload: request.body, at: entry.at)
    }
}

/// The last pushes accepted, at most `capacity`, in a ring. Kept as they came, made readable when asked for.
struct PushLog {
    struct Entry {
        let request: PushRequest
        /// Made up, where the request had none.
        let id: [UInt8]?
        let at: UInt64
    }

    let capacity: Int
    private var ring: [Entry] = []
    /// Where the oldest lies once the ring is full, and the next one goes.
    private var oldest = 0
    /// Ever accepted, also those no longer kept.
    private(set) var total = 0

    init(capacity: Int) { self.capacity = capacity }

    mutating func append(_ entry: Entry) {
        total += 1
        guard ring.count == capacity else { return ring.append(entry) }
        guard capacity > 0 else { return }
        ring[oldest] = entry
        oldest = oldest + 1 == capacity ? 0 : oldest + 1
    }

    mutating func removeAll() {
        ring = []
        oldest = 0
    }

    /// Oldest first.
    private var entries: ArraySlice<Entry> { ring[oldest...] + ring[..<oldest] }

    var pushes: [AcceptedPush] { entries.map { AcceptedPush($0) } }

    /// `[{"token", "headers", "payload", "at"}]`, `at` in RFC 3339 with milliseconds.
    var json: [UInt8] {
        var out: [UInt8] = [UInt8(ascii: "[")]
        for (index, push) in pushes.enumerated() {
            if index > 0 { out.append(UInt8(ascii: ",")) }
            out.append(contentsOf: #"{"token":"#.utf8)
            JSON.append(push.token, to: &out)
            out.append(contentsOf: #","headers":{"#.utf8)
            for (index, header) in push.headers.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { out.append(UInt8(ascii: ",")) }
                JSON.append(header.key, to: &out)
                out.append(UInt8(ascii: ":"))
                JSON.append(header.value, to: &out)
            }
            out.append(contentsOf: #"},"payload":"#.utf8)
            out.append(contentsOf: push.payload)
            out.append(contentsOf: #","at":"#.utf8)
            JSON.append(CalendarDate.timestamp(ms: push.at), to: &out)
            out.append(UInt8(ascii: "}"))
        }
        out.append(UInt8(ascii: "]"))
        return out
    }
}
