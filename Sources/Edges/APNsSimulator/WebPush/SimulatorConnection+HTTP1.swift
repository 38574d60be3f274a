import HTTP1

/// The state of an HTTP/1.1 connection. It serves Web Push alone, one request after the other.
struct HTTP1State {
    let parser: RequestParser
    /// Bytes that arrived during an answer.
    var pending: [UInt8] = []
    var isAnswering = false
    /// Closes the connection after the current answer.
    var endsAfterAnswer = false

    init() {
        // Larger than any message: the face itself checks the length.
        var limits = MessageLimits(bodyBytes: 1 << 16)
        limits.allowsContentEncoding = true
        parser = RequestParser(limits: limits)
    }
}

extension SimulatorConnection {
    /// All requests are one stream to the code that HTTP/2 shares.
    private static let stream: Int32 = 1

    func receiveHTTP1(_ bytes: [UInt8]) {
        http1?.pending += bytes
        serveHTTP1()
    }

    /// Serves the requests that have arrived, until one waits for its answer.
    private func serveHTTP1() {
        while let state = http1, !state.isAnswering, !state.pending.isEmpty, !isClosed, !ends {
            let bytes = state.pending
            http1?.pending = []
            switch state.parser.parse(bytes.span) {
            case .incomplete:
                if state.parser.awaitsContinue { stage(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) }
            case .complete(let consumed):
                http1?.pending = Array(bytes[consumed...])
                http1?.isAnswering = true
                serve(state.parser.takeMessage())
            case .failed(let failure):
                http1?.isAnswering = true
                http1?.endsAfterAnswer = true
                send(Answer(status: failure == .bodyTooLarge ? 413 : 400), Self.stream)
            }
        }
    }

    private func serve(_ message: Message) {
        if !message.keepsAlive { http1?.endsAfterAnswer = true }
        let request = WebPushRequest(message)
        if service.hasEarlyFaults, answersEarly(request, Self.stream) { return }
        judge(request, Self.stream)
    }

    /// Call it when the whole answer is staged.
    func finishHTTP1() {
        http1?.isAnswering = false
        if http1?.endsAfterAnswer == true { ends = true } else { serveHTTP1() }
    }
}

/// An answer of HTTP/1.1 (RFC 9112), in any shape.
struct HTTP1Answer {
    /// In order.
    private(set) var pieces: [[UInt8]] = []

    init(_ answer: Answer, _ form: AnswerForm, keepsAlive: Bool) {
        if let interim = form.interim { pieces.append(Array("HTTP/1.1 \(interim) \r\n\r\n".utf8)) }
        var head = Self.head(answer)
        let isChunked = form.pieces != nil || form.trailers
        let length = form.announced ?? answer.body.count
        head += (isChunked ? "transfer-encoding: chunked\r\n" : "content-length: \(length)\r\n").utf8
        if !keepsAlive { head += "connection: close\r\n".utf8 }
        pieces.append(head + "\r\n".utf8)
        if isChunked { putChunks(of: answer.body, form) } else { pieces.append(answer.body) }
        if form.dribbleMs > 0 { pieces = pieces.flatMap { $0.map { [$0] } } }
    }

    private mutating func putChunks(of body: [UInt8], _ form: AnswerForm) {
        var rest = body[...]
        while !rest.isEmpty {
            let piece = rest.prefix(form.pieces ?? rest.count)
            rest = rest.dropFirst(piece.count)
            pieces.append(Array("\(String(piece.count, radix: 16))\r\n".utf8) + piece + Array("\r\n".utf8))
        }
        pieces.append(Array("0\r\n\(form.trailers ? "x-served-by: simulator\r\n" : "")\r\n".utf8))
    }

    private static func head(_ answer: Answer) -> [UInt8] {
        var head = Array("HTTP/1.1 \(answer.status) \r\n".utf8)
        for (name, value) in answer.fields.dropFirst() { head += Array("\(name): ".utf8) + value + Array("\r\n".utf8) }
        return head
    }

    /// Returns the start of an answer whose head doesn't end, and header lines that continue it.
    static func endless(_ answer: Answer) -> (start: [UInt8], more: [UInt8]) {
        let line = "x-more: " + String(repeating: "m", count: 1000) + "\r\n"
        return (head(answer), Array(String(repeating: line, count: 4).utf8))
    }
}
