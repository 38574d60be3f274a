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
