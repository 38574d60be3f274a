import Vocabulary

/// Pushes whose outcome isn't known yet. Their number is bounded by what a broker opens in the time that an outcome may take.
struct OpenJobs {
    private struct Window {
        var at = 0
        var jobs = 0
    }

    private var openedAt: [JobID: Int] = [:]
    /// The windows that have open jobs, oldest first; those between may have none.
    private var windows: [Window] = []

    var count: Int { openedAt.count }
    var oldest: Int? { windows.first?.at }

    /// Returns false if the job is open already.
    mutating func open(_ job: JobID, at: Int) -> Bool {
        guard openedAt.updateValue(at, forKey: job) == nil else { return false }
        if windows.last?.at != at { windows.append(Window(at: at)) }
        windows[windows.count - 1].jobs += 1
        return true
    }

    /// Returns when the job was opened. Returns nil if it isn't open.
    mutating func close(_ job: JobID) -> Int? {
        guard let at = openedAt.removeValue(forKey: job) else { return nil }
        let window = windows.lastIndex { $0.at == at }!
        windows[window].jobs -= 1
        if window == 0 { windows.removeFirst(windows.prefix { $0.jobs == 0 }.count) }
        return at
    }

    mutating func code(_ coder: inout StateCoder) {
        var jobs = openedAt.map { (job: $0.key.value, at: $0.value) }.sorted { $0.at < $1.at }
        coder.code(&jobs, empty: (job: 0, at: 0)) { entry, coder in
            coder.code(&entry.job)
            coder.code(&entry.at)
        }
        (openedAt, windows) = ([:], [])
        for (job, at) in jobs where !open(JobID(job), at: at) { coder.isDamaged = true }
    }
}
