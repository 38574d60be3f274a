/// Why a text is not one JSON value, and at which byte.
public struct JSONError: Error, Equatable {
    public enum Problem: Sendable, Equatable {
        case notUTF8, nothingFollows, noValue, noKey, noColon, noCommaOrBrace, noCommaOrBracket, noDigit, controlCharacter,
            openText,
            unknownEscape, notFourDigits, halfASurrogatePair, somethingFollows
        case tooDeep(limit: Int)
    }

    public let problem: Problem
    /// An index into the text; its count if the text ends too early.
    public let position: Int

    /// - Parameter text: the one that was read.
    /// - Returns: both count from 1; columns are bytes.
    public func place(in text: Span<UInt8>) -> (line: Int, column: Int) {
        var (line, lineStart) = (1, 0)
        for index in 0..<min(position, text.count) where text[index] == 0x0a { (line, lineStart) = (line + 1, index + 1) }
        return (line, position - lineStart + 1)
    }
}
