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
