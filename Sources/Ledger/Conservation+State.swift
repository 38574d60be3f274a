extension Conservation {
    /// Writes or reads the verifier's state.
    mutating func code(_ coder: inout StateCoder) {
        func templates(_ set: inout Set<[UInt8]>) {
            var list = set.sorted { $0.lexicographicallyPrecedes($1) }
            coder.code(&list, empty: []) { $1.code(&$0) }
            set = Set(list)
        }
        coder.code(&report.size)
        coder.code(&report.fromMs)
        coder.code(&report.toMs)
        coder.code(&report.sealed)
        coder.code(&report.carried)
        coder.code(&report.purged)
        coder.code(&report.opened)
        coder.code(&report.delivered)
        coder.code(&report.failed)
        coder.code(&report.bucketsClosed)
        coder.code(&at)
        coder.code(&resolution)
        coder.code(&timing.hour)
        coder.code(&timing.day)
        coder.code(&timing.seals)
        templates(&inForce)
        templates(&beforeStart)
        coder.code(&longestLife)
        gaps.code(&coder)
        order.code(&coder)
        buckets.code(&coder)
        coder.code(&lastClosed)
        coder.code(&carriedUntil)
        jobs.code(&coder)
        coder.code(&carriedJobs)
        coder.code(&openedAt)
        coder.code(&early)
        coder.code(&booked)
        coder.code(&destroyed.epoch)
        coder.code(&destroyed.due)
        coder.code(&destroyed.dueBefore)
        coder.code(&swept.epoch)
        coder.code(&swept.due)
        coder.code(&swept.dueBefore)
        coder.code(&isSweptAnnounced)
        coder.code(&batch.isOpen)
        coder.code(&batch.seals)
        coder.code(&batch.purges)
        coder.code(&batch.closings)
        coder.code(&batch.rotationClosings)
        coder.code(&isRotating)
        var op = OpName.allCases.firstIndex(of: lastOp)!
        coder.code(&op)
        lastOp = OpName.allCases.indices.contains(op) ? OpName.allCases[op] : lastOp
        coder.code(&closedAt)
        var next = Array((report.next ?? "").utf8)
        coder.code(&next)
        report.next = next.isEmpty ? nil : String(decoding: next, as: UTF8.self)
    }
}
