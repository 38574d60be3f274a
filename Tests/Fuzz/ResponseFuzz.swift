import HTTP1
import HTTP2
import Vocabulary

@testable import Courier

/// The courier's `Answer`. This file has another type of that name.
private typealias PushAnswer = Answer

/// The client's HTTP/1.1 parser, and the courier's session that uses it. The input is a stream of responses, which then ends.
enum ResponseFuzz {
    struct Answer: Equatable {
        let status: UInt16
        let body: [UInt8]
        let headerCount: Int
        let keepsAlive: Bool
        let length: [UInt8]?
        let retryAfter: [UInt8]?
    }

    struct Reading {
        var answers: [Answer] = []
        var failure: ParseFailure?
    }

    static func read(_ pieces: [[UInt8]], isAnswerToHead: Bool) -> Reading {
        let parser = ResponseParser(limits: RequestFuzz.limits)
        parser.expectNoBody(isAnswerToHead)
        var reading = Reading()
        for piece in pieces {
            var start = 0
            while start < piece.count {
                switch parser.parse(piece.span.extracting(start..<piece.count)) {
                case .incomplete: start = piece.count
                case .complete(let consumed):
                    require((1...piece.count - start).contains(consumed), "an answer ends within the bytes that were given")
                    start += consumed
                    take(parser, &reading)
                case .failed(let failure):
                    reading.failure = failure
                    require(parser.finish() == .failed(failure), "a refusal is for good")
                    return reading
                }
            }
        }
        switch parser.finish() {
        case .incomplete: fatalError("nothing is open after the end")
        case .complete: take(parser, &reading)
        case .failed(let failure): reading.failure = failure
        }
        return reading
    }

    private static func take(_ parser: ResponseParser, _ reading: inout Reading) {
        let message = parser.takeMessage()
        reading.answers.append(
            Answer(
                status: message.status, body: message.withBody(copy), headerCount: message.headerCount,
                keepsAlive: message.keepsAlive, length: message.withHeader("content-length", copy),
                retryAfter: message.withHeader("retry-after", copy)))
    }

    static func run(_ input: [UInt8]) {
        for isAnswerToHead in [false, true] {
            let whole = read([input], isAnswerToHead: isAnswerToHead)
            for splitting in [Splitting.bytes, .pieces] {
                let split = read(splitting.split(input), isAnswerToHead: isAnswerToHead)
                let isSame = split.answers == whole.answers && (split.failure == nil) == (whole.failure == nil)
                require(isSame, "the same comes of the \(splitting) as of the whole: \(split) \(whole)")
            }
            for answer in whole.answers {
                require(answer.body.count <= RequestFuzz.limits.bodyBytes, "a body within its limit")
                require(answer.headerCount <= RequestFuzz.limits.headerCount, "header lines within their limit")
                require(answer.status == 101 || answer.status >= 200, "no interim answer is handed over")
                let hasNoBody = isAnswerToHead || answer.status == 204 || answer.status == 304
                require(!hasNoBody || answer.body.isEmpty, "an answer that has no body")
                if !hasNoBody, let length = answer.length {
                    require(Int(String(decoding: length, as: UTF8.self)) == answer.body.count, "a body of the length it says")
                }
            }
            if !isAnswerToHead { checkSession(input, whole.answers.first) }
        }
    }

    // MARK: The courier's session

    /// Reads the answer to one message from a Web Push service's bytes. Returns nil if they are no answer.
    private static func read(_ pieces: [[UInt8]]) -> HTTP2Headers? {
        let session = HTTP1ClientSession(bodyBytes: RequestFuzz.limits.bodyBytes)
        var request: [UInt8] = []
        guard let stream = try? session.submit([1]), session.openStreams == 1 else { fatalError("a request is taken") }
        session.takeOutbound(into: &request)
        _ = session.takeEvents()
        var isClosed = true
        for piece in pieces where isClosed { do { try session.receive(piece.span) } catch { isClosed = false } }
        if isClosed { session.peerClosed() }
        let events = session.takeEvents()
        guard let first = events.first else { return nil }
        guard case .headers(stream, let headers) = first, events.dropFirst() == [.end(stream: stream)] else {
            fatalError("one message has one answer")
        }
        return headers
    }

    private static func checkSession(_ input: [UInt8], _ first: Answer?) {
        let whole = read([input])
        for splitting in [Splitting.bytes, .pieces] {
            require(read(splitting.split(input)) == whole, "the same answer of the \(splitting) as of the whole")
        }
        if let first {
            require(whole?.status == Int(first.status), "the status of the first answer")
            let retryAfter = first.retryAfter.map { String(decoding: $0, as: UTF8.self) }
            require(whole?["retry-after"] == retryAfter, "its Retry-After")
        }
        guard let whole, let status = whole.status else { return require(whole == nil, "an answer has a status") }
        require(status == 101 || status >= 200, "no interim answer")
        _ = PushAnswer(.throttled, .holdToken, retryAfter: whole["retry-after"], nowMs: 1_800_000_000_000)
    }
}
