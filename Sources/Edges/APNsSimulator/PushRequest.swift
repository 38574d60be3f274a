import HTTP2

/// A request, with an index of the fields that the rules check.
struct PushRequest: Sendable {
    /// The fields that the rules check.
    enum Name: Int, CaseIterable {
        case method, path, authorization, topic, pushType, id, expiration, priority, collapseID

        var text: String {
            switch self {
            case .method: ":method"
            case .path: ":path"
            case .authorization: "authorization"
            case .topic: "apns-topic"
            case .pushType: "apns-push-type"
            case .id: "apns-id"
            case .expiration: "apns-expiration"
            case .priority: "apns-priority"
            case .collapseID: "apns-collapse-id"
            }
        }

        init?(_ name: Span<UInt8>) {
            let candidate: Name? =
                switch name.count {
                case 5: .path
                case 7: name[0] == UInt8(ascii: ":") ? .method : .id
                case 10: .topic
                case 13: name[1] == UInt8(ascii: "u") ? .authorization : .priority
                case 14: .pushType
                case 15: .expiration
                case 16: .collapseID
                default: nil
                }
            guard let candidate, name.equals(candidate.text) else { return nil }
            self = candidate
        }
    }

    /// The start and the end of a field's value. Its name starts at the end of the previous field.
    struct Field {
        let value: Int32
        let end: Int32
    }

    /// The names and values of all fields. One buffer avoids the cost of many allocations.
    let bytes: [UInt8]
    private(set) var fields: [Field] = []
    private var places = InlineArray<9, Int16>(repeating: -1)
    private(set) var repeatsAField = false
    var body: [UInt8]

    init(_ block: HTTP2Headers, body: [UInt8] = []) {
        bytes = block.copyBytes()
        self.body = body
        fields.reserveCapacity(block.count)
        var start = 0
        block.forEachField { index, name, value in
            if let known = Name(name) {
                if places[known.rawValue] >= 0 { repeatsAField = true }
                places[known.rawValue] = Int16(clamping: index)
            } else if hasField(name) {
                repeatsAField = true
            }
            fields.append(Field(value: Int32(start + name.count), end: Int32(start + name.count + value.count)))
            start += name.count + value.count
        }
    }

    private func hasField(_ name: Span<UInt8>) -> Bool {
        var start = 0
        let span = bytes.span
        for field in fields {
            if Int(field.value) - start == name.count, span.extracting(start..<Int(field.value)).equals(name) { return true }
            start = Int(field.end)
        }
        return false
    }

    /// Calls `body` with the name and value of each field, in order.
    func forEachField(_ body: (Span<UInt8>, Span<UInt8>) -> Void) {
        var start = 0
        let span = bytes.span
        for field in fields {
            body(span.extracting(start..<Int(field.value)), span.extracting(Int(field.value)..<Int(field.end)))
            start = Int(field.end)
        }
    }

    /// True for a request to the Web Push face.
    var isWebPush: Bool { with(.path) { $0.hasPrefix(WebPushRequest.pathPrefix) } ?? false }

    func has(_ name: Name) -> Bool { places[name.rawValue] >= 0 }

    /// Calls `body` with the value of a field. Returns nil if the field is missing.
    func with<R, E>(_ name: Name, _ body: (Span<UInt8>) throws(E) -> R) throws(E) -> R? {
        let place = places[name.rawValue]
        guard place >= 0 else { return nil }
        let field = fields[Int(place)]
        return try body(bytes.span.extracting(Int(field.value)..<Int(field.end)))
    }

    func text(_ name: Name) -> String? {
        with(name) { String($0) }
    }

    static let pathPrefix = "/3/device/"

    /// The device token in lower-case hex.
    var token: String { text(.path).map { Self.token(inPath: $0) } ?? "" }

    static func token(inPath path: String) -> String { path.dropFirst(pathPrefix.utf8.count).lowercased() }
}

extension Span<UInt8> {
    func equals(_ other: Span<UInt8>) -> Bool {
        guard count == other.count else { return false }
        for index in indices where self[index] != other[index] { return false }
        return true
    }

    func equals(_ text: String) -> Bool {
        count == text.utf8.count && hasPrefix(text)
    }

    func hasPrefix(_ text: String) -> Bool {
        let prefix = text.utf8.span
        guard count >= prefix.count else { return false }
        for index in prefix.indices where self[index] != prefix[index] { return false }
        return true
    }

    func allSatisfy(_ isFine: (UInt8) -> Bool) -> Bool {
        for index in indices where !isFine(self[index]) { return false }
        return true
    }
}

extension String {
    /// Invalid UTF-8 is replaced.
    init(_ bytes: Span<UInt8>) {
        if let text = try? UTF8Span(validating: bytes) {
            self = String(copying: text)
        } else {
            self = String(decoding: bytes.indices.map { bytes[$0] }, as: UTF8.self)
        }
    }
}

extension [UInt8] {
    init(_ bytes: Span<UInt8>) {
        self.init(capacity: bytes.count) { copy in
            for index in bytes.indices { copy.append(bytes[index]) }
        }
    }
}

/// The incomplete requests of a connection, in the order of their start. Most end in that order, so lookups usually find the first one.
struct ArrivingRequests {
    private var entries: [(stream: Int32, request: PushRequest?)] = []
    /// Index of the first entry that hasn't been taken.
    private var first = 0

    mutating func add(_ request: PushRequest, _ stream: Int32) {
        // A request that never ends must not keep the entries of all later ones.
        if entries.count - first > 4096 {
            entries.removeAll { $0.request == nil }
            first = 0
        }
        entries.append((stream, request))
    }

    mutating func append(_ body: [UInt8], _ stream: Int32) {
        guard let place = place(of: stream) else { return }
        entries[place].request?.body.append(contentsOf: body)
    }

    mutating func take(_ stream: Int32) -> PushRequest? {
        guard let place = place(of: stream) else { return nil }
        let request = entries[place].request.take()
        while first < entries.count, entries[first].request == nil { first += 1 }
        if first == entries.count {
            entries.removeAll(keepingCapacity: true)
            first = 0
        }
        return request
    }

    private func place(of stream: Int32) -> Int? {
        if first < entries.count, entries[first].stream == stream { return first }
        return entries[first...].firstIndex { $0.stream == stream && $0.request != nil }
    }
}
