import Broker
public import EventLoop
import Linux
public import Shares
import Synchronization
import Vocabulary

/// Reads files of the log on a few threads. A disk that is slow, or answers nothing, delays only the requests for these files.
///
/// Requests over their share of reads wait in line. One without an answer in time fails, even if its read never ends.
public actor LogFileReader: LoopActor {
    /// The disk did not answer in time.
    struct TooSlow: Error, Equatable, CustomStringConvertible {
        var description: String {
            "a file of the log could not be read within \(LogFileReader.longestMs / 1_000) s. Check the disk of the ledger's folder"
        }
    }

    private struct Request {
        let path: String
        let owners: Owners
        let timeout: TimerID
        let continuation: CheckedContinuation<[UInt8]?, any Error>
    }

    public nonisolated let loop: EventLoop
    private let shares: Shares
    private let readFile: @Sendable (String) throws -> [UInt8]?
    private let threads = WorkThreads(name: "log-files", most: mostThreads)
    private var lastNumber: UInt64 = 0
    /// The requests without an answer, by number.
    private var requests: [UInt64: Request] = [:]
    /// The numbers of requests whose reads have not begun, by payer and in order of arrival. Some may have had their answer, but never the first.
    private var waiting: [Owner: Queue<UInt64>] = [:]
    /// The first request of each line, in the order of their turns. Some may have had their answer, but never the first.
    private var turns = Queue<UInt64>()
    /// With fewer reads than these, a thread may be idle.
    private let fewestReads: Int

    /// The number of payers with a line.
    var lineCount: Int { waiting.count }
    /// How often a request's share was asked for.
    private(set) var tries = 0

    static let mostThreads = 4
    static let longestMs: UInt64 = 10_000

    /// - Parameters:
    ///   - loop: the loop of all callers.
    ///   - shares: the quotas of `logRequests` and `logReads`.
    ///   - readFile: returns a file's bytes, or nil if there is none. Called on any thread.
    public init(loop: EventLoop, shares: Shares, readFile: @escaping @Sendable (_ path: String) throws -> [UInt8]?) {
        (self.loop, self.shares, self.readFile) = (loop, shares, readFile)
        fewestReads = min(Self.mostThreads, shares.table[.logReads].total)
    }

    /// Returns a file's bytes, or nil if there is none.
    /// - Throws: `Shortage` if the owners have too many requests; `TooSlow`; or an error of the folder.
    func read(_ path: String, for owners: Owners) async throws -> [UInt8]? {
        let request = try shares.charge(.logRequests, to: owners)
        defer { shares.refund(request) }
        return try await withCheckedThrowingContinuation { continuation in
            lastNumber += 1
            let number = lastNumber
            let timeout = loop.after(Self.longestMs) { self.assumeIsolated { $0.answer(number, .failure(TooSlow())) } }
            requests[number] = Request(path: path, owners: owners, timeout: timeout, continuation: continuation)
            let isFirst = waiting[owners.payer] == nil
            waiting[owners.payer, default: Queue()].append(number)
            if isFirst, !start(number) { turns.append(number) }
        }
    }

    /// Gives the next payer its turn. One that is over its share waits for its next turn: its own reads, which still run, will end.
    /// - Returns: whether a read was started.
    private func startNext() -> Bool {
        guard let number = turns.popFirst() else { return false }
        let isStarted = start(number)
        if !isStarted { turns.append(number) }
        skipAnswered()
        return isStarted
    }

    /// Starts the read of the first request of a line.
    /// - Returns: false if it is over its share.
    private func start(_ number: UInt64) -> Bool {
        guard let request = requests[number] else { return false }
        tries += 1
        // This asks before it charges, because a request that waits is not refused.
        guard shares.allows(.logReads, to: request.owners), let read = try? shares.charge(.logReads, to: request.owners) else {
            return false
        }
        advance(request.owners.payer)
        start(number, request.path, read)
        return true
    }

    private func start(_ number: UInt64, _ path: String, _ read: Charge) {
        do throws(Errno) {
            try threads.run { [loop, readFile] in
                let result = Result { try readFile(path) }
                loop.submit { self.assumeIsolated { $0.end(number, result, read) } }
            }
        } catch {
            shares.refund(read)
            answer(number, .failure(error))
        }
    }

    private func end(_ number: UInt64, _ result: Result<[UInt8]?, any Error>, _ read: Charge) {
        shares.refund(read)
        answer(number, result)
        // One turn for the share that is free now. It is all that a read's end costs this loop, however many wait.
        while startNext(), shares.used(.logReads) < fewestReads {}
    }

    /// Answers a request, unless it was answered before.
    private func answer(_ number: UInt64, _ result: Result<[UInt8]?, any Error>) {
        guard let request = requests.removeValue(forKey: number) else { return }
        loop.cancel(request.timeout)
        if waiting[request.owners.payer]?.first == number { advance(request.owners.payer) }
        // Others do so only when a read ends, and on a disk that hangs none does.
        skipAnswered()
        request.continuation.resume(with: result)
    }

    /// Removes the first request of a line, and the answered ones behind it. The next one gets the last turn.
    private func advance(_ payer: Owner) {
        _ = waiting[payer]?.popFirst()
        while let next = waiting[payer]?.first {
            if requests[next] != nil { return turns.append(next) }
            _ = waiting[payer]?.popFirst()
        }
        waiting[payer] = nil
    }

    private func skipAnswered() {
        while let first = turns.first, requests[first] == nil { _ = turns.popFirst() }
    }
}

/// A few threads for work that blocks. They run while there is some.
final class WorkThreads: Sendable {
    private struct State {
        var work: [@Sendable () -> Void] = []
        var running = 0
    }

    private let name: String
    private let most: Int
    private let state = Mutex(State())

    init(name: String, most: Int) { (self.name, self.most) = (name, most) }

    /// Runs `work` on one of the threads, in order of arrival. Call it on one thread only.
    /// - Throws: if no thread can be started. The work is dropped then.
    func run(_ work: @escaping @Sendable () -> Void) throws(Errno) {
        let starts = state.withLock { state in
            state.work.append(work)
            guard state.running < most else { return false }
            state.running += 1
            return true
        }
        guard starts else { return }
        do throws(Errno) {
            _ = try Thread.spawn(name: name) { self.serve() }
        } catch {
            let isDropped = state.withLock { state in
                state.running -= 1
                // The other threads do it later.
                guard state.running == 0 else { return false }
                state.work = []
                return true
            }
            if isDropped { throw error }
        }
    }

    private func serve() {
        while let work = next() { work() }
    }

    private func next() -> (@Sendable () -> Void)? {
        state.withLock { state in
            guard !state.work.isEmpty else {
                state.running -= 1
                return nil
            }
            return state.work.removeFirst()
        }
    }
}
