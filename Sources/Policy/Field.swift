public import Vocabulary

/// A place in a template that a push fills. There are four kinds and none of them holds free text, so that what someone
/// wrote can't be put into a push, by mistake or otherwise.
public struct Field: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        /// 16 bytes that mean something to the receiver's device alone.
        case handle
        /// One of the listed words.
        case oneOf([String])
        /// `range.lowerBound`, and from there in steps up to `range.upperBound`.
        case number(range: ClosedRange<Int>, step: Int)
        case flag

        /// As a policy file calls it.
        var name: String {
            switch self {
            case .handle: "handle"
            case .oneOf: "enum"
            case .number: "number"
            case .flag: "flag"
            }
        }
    }

    public let name: String
    public let kind: Kind
    /// Where the value stands in the payload, from the outermost key inwards; nil when only a text names it.
    public let key: [String]?

    static let kindNames = ["handle", "enum", "number", "flag"]
}

/// What a push puts into a field.
public enum FieldValue: Sendable, Equatable {
    /// 16 bytes, written as base64url without padding.
    case handle(Handle)
    /// One of an enum field's words. What is written is the policy's own copy of it.
    case choice(String)
    case number(Int)
    case flag(Bool)
}
