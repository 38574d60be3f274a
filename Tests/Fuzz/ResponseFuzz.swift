import HTTP1

/// The client's HTTP/1.1 parser. The input is a stream of responses, which then ends.
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
        }
    }
}
