import HTTP2

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
    init(_ request: PushRequest, id: [UInt8], at: UInt64) {
        var headers: [String: String] = [:]
        for index in 0..<request.block.count {
            let (name, value) = request.block[index]
            if name != "authorization", !name.hasPrefix(":") { headers[name] = value }
        }
        headers["apns-id"] = String(decoding: id, as: UTF8.self)
        self.init(token: request.token, headers: headers, payload: request.body, at: at)
    }
}

/// The pushes accepted, oldest first: at least the last `capacity` of them. Kept as they came, made readable when asked for.
struct PushLog {
    struct Entry {
        let request: PushRequest
        let id: [UInt8]
        let at: UInt64
    }

    let capacity: Int
    private var entries: [Entry] = []
    /// Ever accepted, also those no longer kept.
    private(set) var total = 0

    init(capacity: Int) { self.capacity = capacity }

    mutating func append(_ entry: Entry) {
        total += 1
        guard capacity > 0 else { return }
        if entries.count >= 2 * capacity { entries.removeFirst(entries.count - capacity + 1) }
        entries.append(entry)
    }

    mutating func removeAll() { entries = [] }

    var pushes: [AcceptedPush] { entries.map { AcceptedPush($0.request, id: $0.id, at: $0.at) } }

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
            JSON.append(Self.timestamp(push.at), to: &out)
            out.append(UInt8(ascii: "}"))
        }
        out.append(UInt8(ascii: "]"))
        return out
    }

    /// RFC 3339 in UTC with milliseconds.
    static func timestamp(_ ms: UInt64) -> String {
        func padded(_ value: UInt64, _ width: Int) -> String {
            let digits = String(value)
            return String(repeating: "0", count: max(0, width - digits.count)) + digits
        }
        // Years that begin in March put the leap day last; 400 of them are 146,097 days.
        let days = ms / 86_400_000 + 719_468
        let era = days / 146_097
        let dayOfEra = days % 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * month + 2) / 5 + 1
        let year = yearOfEra + era * 400 + (month >= 10 ? 1 : 0)
        let seconds = ms / 1000
        return "\(padded(year, 4))-\(padded(month < 10 ? month + 3 : month - 9, 2))-\(padded(day, 2))"
            + "T\(padded(seconds / 3600 % 24, 2)):\(padded(seconds / 60 % 60, 2)):\(padded(seconds % 60, 2)).\(padded(ms % 1000, 3))Z"
    }
}
