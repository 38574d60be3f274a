import HTTP2
import Linux
import Vocabulary

/// An accepted push.
public struct AcceptedPush: Sendable, Equatable {
    /// The device token in lower-case hex.
    public let token: String
    /// The headers without pseudo-headers and `authorization`. `apns-id` is always present, even if the request had none.
    public let headers: [String: String]
    /// The request's body, a JSON object.
    public let payload: [UInt8]
    /// Unix milliseconds.
    public let at: UInt64
}

/// The last `capacity` accepted pushes, in a few large blocks that are reused in turn.
///
/// Separate allocations per push would be cold in the cache when they are reused, and cost more than the rest of a push.
struct PushLog {
    struct Entry {
        let request: PushRequest
        /// The generated id if the request had none, otherwise nil.
        let id: [UInt8]?
        /// Unix milliseconds.
        let at: UInt64
    }

    /// The ends of a push's parts in its block: of its fields, of their bytes, of its body and of its generated id.
    private struct Mark {
        let at: UInt64
        let fields: Int
        let text: Int
        let body: Int
        let id: Int
    }

    private struct Block {
        var bytes: [UInt8] = []
        var fields: [PushRequest.Field] = []
        var marks: [Mark] = []

        mutating func append(_ entry: Entry) {
            bytes.append(contentsOf: entry.request.bytes)
            let text = bytes.count
            bytes.append(contentsOf: entry.request.body)
            let body = bytes.count
            if let id = entry.id { bytes.append(contentsOf: id) }
            fields.append(contentsOf: entry.request.fields)
            marks.append(Mark(at: entry.at, fields: fields.count, text: text, body: body, id: bytes.count))
        }

        mutating func empty() {
            bytes.removeAll(keepingCapacity: true)
            fields.removeAll(keepingCapacity: true)
            marks.removeAll(keepingCapacity: true)
        }

        var pushes: [AcceptedPush] {
            var (fieldsStart, start) = (0, 0)
            return marks.map { mark in
                defer { (fieldsStart, start) = (mark.fields, mark.id) }
                return push(mark, fields[fieldsStart..<mark.fields], start)
            }
        }

        private func push(_ mark: Mark, _ fields: ArraySlice<PushRequest.Field>, _ start: Int) -> AcceptedPush {
            func text(_ range: Range<Int>) -> String { String(decoding: bytes[range], as: UTF8.self) }
            var headers: [String: String] = [:]
            var token = ""
            var end = start
            for field in fields {
                let name = text(end..<start + Int(field.value))
                let value = text(start + Int(field.value)..<start + Int(field.end))
                end = start + Int(field.end)
                if name == ":path" { token = PushRequest.token(inPath: value) }
                if name != "authorization", !name.hasPrefix(":") { headers[name] = value }
            }
            if mark.id > mark.body { headers["apns-id"] = text(mark.body..<mark.id) }
            return AcceptedPush(token: token, headers: headers, payload: Array(bytes[mark.text..<mark.body]), at: mark.at)
        }
    }

    private let capacity: Int
    private let blockSize: Int
    /// Oldest first. The last one gets the next push.
    private var blocks: [Block] = []
    private var kept = 0

    init(capacity: Int) {
        self.capacity = capacity
        blockSize = min(1024, max(1, capacity / 4))
    }

    mutating func append(_ entry: Entry) {
        guard capacity > 0 else { return }
        if blocks.last.map({ $0.marks.count == blockSize }) ?? true { addBlock() }
        blocks[blocks.count - 1].append(entry)
        kept += 1
    }

    private mutating func addBlock() {
        guard let oldest = blocks.first?.marks.count, kept - oldest >= capacity else { return blocks.append(Block()) }
        kept -= oldest
        var block = blocks.removeFirst()
        block.empty()
        blocks.append(block)
    }

    mutating func removeAll() {
        blocks = []
        kept = 0
    }

    /// Oldest first.
    var pushes: [AcceptedPush] { blocks.flatMap(\.pushes).suffix(capacity) }
}

extension AcceptedPush {
    /// `{"token", "headers", "payload", "at"}`, `at` in RFC 3339 with milliseconds.
    func append(to out: inout [UInt8]) {
        out.append(contentsOf: #"{"token":"#.utf8)
        JSON.append(token, to: &out)
        out.append(contentsOf: #","headers":"#.utf8)
        JSON.append(headers, to: &out)
        out.append(contentsOf: #","payload":"#.utf8)
        out.append(contentsOf: payload)
        out.append(contentsOf: #","at":"#.utf8)
        JSON.append(Timestamp.preciseText(at), to: &out)
        out.append(UInt8(ascii: "}"))
    }
}

/// A file that records accepted pushes, and answers that were written to a socket. For tests that kill the simulator.
///
/// Lines are `<apns-id> accepted` and `<apns-id> answered`. The file contains no tokens.
final class PushRecord {
    private let file: OpenFile
    private var pending: [UInt8] = []

    /// - Throws: `Errno`.
    init(_ path: String) throws(Errno) { file = try OpenFile(path, .append(mode: 0o600)) }

    func accepted(_ id: [UInt8]) { put(id, " accepted\n") }
    func answered(_ id: [UInt8]) { put(id, " answered\n") }

    private func put(_ id: [UInt8], _ outcome: StaticString) {
        pending += id
        pending += outcome.description.utf8
    }

    /// Writes the pending lines. Must be called before the answers are sent.
    /// - Throws: `Errno`. Then the answers must not be sent.
    func write() throws(Errno) {
        guard !pending.isEmpty else { return }
        // A span must not outlive an access to a class.
        let lines = exchange(&pending, with: [])
        try file.write(lines.span, at: 0)
    }
}
