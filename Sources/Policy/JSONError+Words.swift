import JSON

extension JSONError.Problem {
    /// What lint says of a policy file with this problem.
    var words: String {
        switch self {
        case .notUTF8: "the file is not UTF-8"
        case .nothingFollows: "the file ends where a value is expected"
        case .noValue: "this is not a JSON value"
        case .noKey: "a key in double quotes is expected here"
        case .noColon: "a colon is expected after the key"
        case .noCommaOrBrace: "a comma or } is expected here"
        case .noCommaOrBracket: "a comma or ] is expected here"
        case .noDigit: "a digit is expected here"
        case .controlCharacter: "a string has an unescaped control character"
        case .openText: "a string is not closed"
        case .unknownEscape: "an unknown escape"
        case .notFourDigits: "four hexadecimal digits are expected after \\u"
        case .halfASurrogatePair: "half a surrogate pair"
        case .somethingFollows: "there is text after the end of the JSON value"
        case .tooDeep(let limit): "more than \(limit) nested objects or lists"
        }
    }
}
