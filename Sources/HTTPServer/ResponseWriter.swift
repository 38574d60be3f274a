import HTTP2
import Linux

/// Writes answers in one pass to the end of a buffer.
struct ResponseWriter {
    private static let json = line(of: .json)
    private static let problem = line(of: .problem)
    private static let text = line(of: .text)
    private static let html = line(of: .html)
    private static let bytes = line(of: .bytes)
    private static let contentType = Array("Content-Type: ".utf8)
    private static func line(of type: HTTPResponse.ContentType) -> [UInt8] { Array("Content-Type: \(type.value ?? "")\r\n".utf8) }
    private static let contentLength = Array("Content-Length: ".utf8)
    private static let close = Array("Connection: close\r\n".utf8)
    private static let keepAlive = Array("Connection: keep-alive\r\n".utf8)
    private static let lineEnd: [UInt8] = [0x0D, 0x0A]
    static let goOn = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)

    private var dateLine: [UInt8] = []
    private var second: UInt64 = .max

    /// To be told the wall clock before a batch of answers.
    mutating func setTime(wallMs: UInt64) {
        guard wallMs / 1000 != second else { return }
        second = wallMs / 1000
        dateLine = HTTPDate.line(second)
    }

    /// - Parameters:
    ///   - isHead: the answer to HEAD: its header lines tell of a body that is left out.
    ///   - closes: the connection ends with this answer. - isVersion11: else a kept connection is announced.
    func write(_ response: HTTPResponse, isHead: Bool, closes: Bool, isVersion11: Bool, to output: inout [UInt8]) {
        output.reserveWiping(256 + response.body.count)
        output.append(contentsOf: StatusLine.bytes(response.status))
        output.append(contentsOf: dateLine)
        switch response.contentType {
        case .none: break
        case .json: output.append(contentsOf: Self.json)
        case .problem: output.append(contentsOf: Self.problem)
        case .text: output.append(contentsOf: Self.text)
        case .html: output.append(contentsOf: Self.html)
        case .bytes: output.append(contentsOf: Self.bytes)
        case .other(let type):
            output.append(contentsOf: Self.contentType)
            output.append(contentsOf: type.utf8)
            output.append(contentsOf: Self.lineEnd)
        }
        for header in response.headers {
            output.append(contentsOf: header.name.utf8)
            output.append(0x3A)
            output.append(0x20)
            output.append(contentsOf: header.value.utf8)
            output.append(contentsOf: Self.lineEnd)
        }
        if closes {
            output.append(contentsOf: Self.close)
        } else if !isVersion11 {
            output.append(contentsOf: Self.keepAlive)
        }
        if response.hasBody {
            output.append(contentsOf: Self.contentLength)
            Self.write(response.body.count, to: &output)
            output.append(contentsOf: Self.lineEnd)
        }
        output.append(contentsOf: Self.lineEnd)
        if response.hasBody, !isHead { output.append(contentsOf: response.body) }
    }

    /// The same for HTTP/2, whose names are in lower case.
    func headers(of response: HTTPResponse) -> HTTP2Headers {
        var headers = HTTP2Headers(capacity: 256)
        headers.append(":status", "\(response.status)")
        // Without "Date: " and the line end.
        headers.append("date", dateLine.span.extracting(6..<dateLine.count - 2))
        if let type = response.contentType.value { headers.append("content-type", type) }
        for header in response.headers { headers.append(header.name.lowercased(), header.value) }
        if response.hasBody { headers.append("content-length", "\(response.body.count)") }
        return headers
    }

    private static func write(_ number: Int, to output: inout [UInt8]) {
        var divisor = 1
        while number / divisor >= 10 { divisor *= 10 }
        while divisor > 0 {
            output.append(0x30 + UInt8(number / divisor % 10))
            divisor /= 10
        }
    }
}

extension [UInt8] {
    /// Makes room for `more` bytes. An array that grew by itself would leave its old bytes behind.
    mutating func reserveWiping(_ more: Int) {
        guard count + more > capacity else { return }
        var larger: [UInt8] = []
        larger.reserveCapacity(Swift.max(count + more, capacity * 2))
        larger.append(contentsOf: self)
        swap(&self, &larger)
        wipe(&larger)
    }
}

/// The first lines of answers, made once.
enum StatusLine {
    static func reason(_ status: UInt16) -> String {
        switch status {
        case 101: "Switching Protocols"
        case 200: "OK"
        case 201: "Created"
        case 202: "Accepted"
        case 204: "No Content"
        case 304: "Not Modified"
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 408: "Request Timeout"
        case 409: "Conflict"
        case 410: "Gone"
        case 413: "Content Too Large"
        case 414: "URI Too Long"
        case 415: "Unsupported Media Type"
        case 417: "Expectation Failed"
        case 422: "Unprocessable Content"
        case 426: "Upgrade Required"
        case 429: "Too Many Requests"
        case 431: "Request Header Fields Too Large"
        case 500: "Internal Server Error"
        case 503: "Service Unavailable"
        default: ""
        }
    }

    private static let lines: [[UInt8]] = (100..<600).map { Array("HTTP/1.1 \($0) \(reason(UInt16($0)))\r\n".utf8) }

    static func bytes(_ status: UInt16) -> [UInt8] {
        lines[status >= 100 && status < 600 ? Int(status) - 100 : 400]
    }
}

/// `Date: Sun, 06 Nov 1994 08:49:37 GMT` and its line end (RFC 9110 section 5.6.7).
enum HTTPDate {
    private static let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    /// - Parameter seconds: unix time.
    static func line(_ seconds: UInt64) -> [UInt8] {
        let days = Int(seconds / 86400)
        let second = Int(seconds % 86400)
        let calendar = CalendarDate(daysSince1970: UInt64(days))
        func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let date = "\(Self.days[days % 7]), \(two(Int(calendar.day))) \(months[Int(calendar.month) - 1]) \(calendar.year)"
        return Array("Date: \(date) \(two(second / 3600)):\(two(second / 60 % 60)):\(two(second % 60)) GMT\r\n".utf8)
    }
}
