/// What a session's Live Activity shows: `content-state` of the broker's pushes, with the same keys. It has no dates.
///
/// Use it as the `ContentState` of the app's `ActivityAttributes`.
public struct SessionContentState: Hashable, Sendable, Codable {
    public struct ApprovalRequest: Hashable, Sendable, Codable {
        /// For ``Accounts/respond(to:approved:from:)``.
        public var requestID: String
        /// The policy's constant.
        public var toolName: String?
        /// The policy's constant.
        public var summary: String?

        public init(requestID: String, toolName: String? = nil, summary: String? = nil) {
            (self.requestID, self.toolName, self.summary) = (requestID, toolName, summary)
        }

        private enum CodingKeys: String, CodingKey {
            case requestID = "requestId"
            case toolName, summary
        }
    }

    public var status: SessionState
    /// In steps of ten.
    public var elapsedSeconds: Int
    /// The policy's constant.
    public var currentOperation: String?
    public var todoProgress: TodoProgress?
    /// The oldest pending approval.
    public var approvalRequest: ApprovalRequest?

    public init(
        status: SessionState, elapsedSeconds: Int = 0, currentOperation: String? = nil, todoProgress: TodoProgress? = nil,
        approvalRequest: ApprovalRequest? = nil
    ) {
        self.status = status
        self.elapsedSeconds = elapsedSeconds
        self.currentOperation = currentOperation
        self.todoProgress = todoProgress
        self.approvalRequest = approvalRequest
    }
}
