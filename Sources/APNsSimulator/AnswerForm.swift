/// In what shape an answer goes out; plain where nothing is set.
public struct AnswerForm: Sendable, Equatable {
    /// An interim answer with this status, 100 to 199, comes first.
    public var interim: Int?
    /// DATA frames hold at most this many bytes.
    public var pieces: Int?
    /// HEADERS and CONTINUATION frames hold at most this many bytes.
    public var continuation: Int?
    /// What `content-length` says, whatever is true.
    public var announced: Int?
    /// A header block after the body.
    public var trailers = false
    /// Milliseconds from the first to the last frame, with the body in pieces.
    public var dribbleMs: UInt64 = 0
    /// The connection ends after half of the answer's bytes.
    public var half = false

    public init() {}

    var isPlain: Bool { self == AnswerForm() }
}
