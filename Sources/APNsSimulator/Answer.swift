import HTTP2

/// One answer, ready to be sent.
struct Answer {
    var status: Int
    var id: [UInt8]
    /// Sandbox only, with 200: what Apple's console looks a delivery up by.
    var uniqueID: [UInt8]?
    var retryAfter: Int?
    var body: [UInt8] = []

    /// - Parameter now: unix milliseconds, for the time stamp of a 410.
    static func refused(_ reason: Reason, id: [UInt8], now: UInt64) -> Answer {
        Answer(status: reason.status, id: id, body: json(reason.rawValue, reason.status == 410 ? now : nil))
    }

    /// What `fault` says, or nil if it gives no answer.
    init?(_ fault: Fault, id: [UInt8], now: UInt64) {
        guard let status = fault.answerStatus else { return nil }
        self.init(status: status, id: id, retryAfter: fault.retryAfter)
        if let text = fault.body {
            body = Array(text.utf8)
        } else if let reason = fault.reason {
            body = Self.json(reason, fault.timestamp ?? (status == 410 ? now : nil), as: fault.timestampAs)
        }
    }

    init(status: Int, id: [UInt8], uniqueID: [UInt8]? = nil, retryAfter: Int? = nil, body: [UInt8] = []) {
        self.status = status
        self.id = id
        self.uniqueID = uniqueID
        self.retryAfter = retryAfter
        self.body = body
    }

    var headers: HTTP2Headers {
        var headers = HTTP2Headers(capacity: 128)
        headers.append(":status", status == 200 ? "200" : "\(status)")
        headers.append("apns-id", id.span, .never)
        if let uniqueID { headers.append("apns-unique-id", uniqueID.span, .never) }
        if let retryAfter { headers.append("retry-after", "\(retryAfter)") }
        return headers
    }

    /// The same, as bytes.
    var fields: [(String, [UInt8])] {
        var fields: [(String, [UInt8])] = [(":status", Array("\(status)".utf8)), ("apns-id", id)]
        if let uniqueID { fields.append(("apns-unique-id", uniqueID)) }
        if let retryAfter { fields.append(("retry-after", Array("\(retryAfter)".utf8))) }
        return fields
    }

    /// `{"reason":...}`, and for 410 when the token stopped being valid, in unix milliseconds.
    static func json(_ reason: String, _ timestamp: UInt64?, as form: TimestampForm? = nil) -> [UInt8] {
        var out = Array(#"{"reason":"#.utf8)
        JSON.append(reason, to: &out)
        if let timestamp {
            let member = ",\"timestamp\":"
            let text =
                switch form {
                case nil: member + "\(timestamp)"
                case .seconds: member + "\(timestamp / 1000)"
                case .text: member + "\"\(timestamp)\""
                case .negative: member + "-\(timestamp)"
                case .huge: member + "18446744073709551616"
                case .missing: ""
                case .twice: member + "\(timestamp)" + member + "\(timestamp)"
                }
            out.append(contentsOf: text.utf8)
        }
        out.append(UInt8(ascii: "}"))
        return out
    }
}
