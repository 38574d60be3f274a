/// What a push certificate is for: a DER sequence in which each topic, a UTF8String, is followed by a sequence of words about its kind.
enum TopicList {
    private static let sequence: UInt8 = 0x30
    private static let utf8String: UInt8 = 0x0c

    /// - Returns: the topics; none where the bytes are something else.
    static func read(_ der: Span<UInt8>) -> [String] {
        var index = 0
        guard let list = next(der, &index), list.tag == sequence, index == der.count else { return [] }
        var topics: [String] = []
        var place = list.content.lowerBound
        let content = der.extracting(first: list.content.upperBound)
        while place < content.count {
            guard let part = next(content, &place) else { return [] }
            guard part.tag == utf8String else { continue }
            var text: [UInt8] = []
            for index in part.content { text.append(content[index]) }
            topics.append(String(decoding: text, as: UTF8.self))
        }
        return topics
    }

    /// The tag at `index` and where its content is; moves `index` behind it. Nil for what does not fit, or has a length of no definite form.
    private static func next(_ der: Span<UInt8>, _ index: inout Int) -> (tag: UInt8, content: Range<Int>)? {
        guard index + 2 <= der.count else { return nil }
        let tag = der[index]
        var length = Int(der[index + 1])
        index += 2
        if length >= 0x80 {
            let digits = length - 0x80
            guard (1...3).contains(digits), index + digits <= der.count else { return nil }
            length = 0
            for _ in 0..<digits {
                length = length << 8 | Int(der[index])
                index += 1
            }
        }
        guard length <= der.count - index else { return nil }
        defer { index += length }
        return (tag, index..<index + length)
    }
}
