import Courier

/// The courier's.
typealias FoundReason = Reason
