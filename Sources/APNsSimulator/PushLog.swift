import HTTP2
import Vocabulary

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

/// The last pushes accepted, `capacity` of them. They lie one behind the other in a few large blocks that are used again in turn: small
/// pieces of memory for each would be cold when their turn comes, and cost more than all the rest of a push.
struct PushLog {
    struct Entry {
        let request: PushRequest
        /// Made up, where the request had none.
        let id: [UInt8]?
        let at: UInt64
    }

    /// Where in its block a push ends.
    private struct Mark {
        let at: UInt64
        let fields: Int
        /// Of its fields' bytes, of its body, of the id made up for it.
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

    let capacity: Int
    private let blockSize: Int
    /// Oldest first; the last one takes the next push.
    private var blocks: [Block] = []
    private var kept = 0
    /// Ever accepted, also those no longer kept.
    private(set) var total = 0

    init(capacity: Int) {
        self.capacity = capacity
        blockSize = min(1024, max(1, capacity / 4))
    }

    mutating func append(_ entry: Entry) {
        total += 1
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
            JSON.append(Timestamp.preciseText(push.at), to: &out)
            out.append(UInt8(ascii: "}"))
        }
        out.append(UInt8(ascii: "]"))
        return out
    }
}
