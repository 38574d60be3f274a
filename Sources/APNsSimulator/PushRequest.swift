import HTTP2

/// One request as it came: what the rules look at.
struct PushRequest: Sendable {
    struct Field: Sendable, Equatable {
        let name: String
        let value: String
    }

    var method: String
    var path: String
    /// Without pseudo-header fields, in their order.
    var headers: [Field]
    var body: [UInt8]

    init(method: String = "POST", path: String, headers: [Field], body: [UInt8]) {
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
    }

    init(_ block: HTTP2Headers, body: [UInt8]) {
        method = ""
        path = ""
        headers = []
        self.body = body
        headers.reserveCapacity(block.count)
        for index in 0..<block.count {
            let (name, value) = block[index]
            switch name {
            case ":method": method = value
            case ":path": path = value
            case _ where name.utf8.first == UInt8(ascii: ":"): break
            default: headers.append(Field(name: name, value: value))
            }
        }
    }

    subscript(name: String) -> String? {
        headers.first { $0.name == name }?.value
    }

    var repeatsAHeader: Bool {
        for (index, field) in headers.enumerated() where headers[..<index].contains(where: { $0.name == field.name }) {
            return true
        }
        return false
    }
}
