import APNsSimulator

// Both modules are named like a type of theirs, so where both are imported neither `Reason` can be named.

/// The simulator's.
typealias PlannedReason = Reason
