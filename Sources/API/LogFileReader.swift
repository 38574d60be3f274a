import Broker
public import EventLoop
import Linux
public import Shares
import Synchronization

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
    private var waiting: [Owner: [UInt64]] = [:]

    /// The number of payers with a line.
    var lineCount: Int { waiting.count }

    static let mostThreads = 4
    static let longestMs: UInt64 = 10_000

    /// - Parameters:
    ///   - loop: the loop of all callers.
    ///   - shares: the quotas of `logRequests` and `logReads`.
    ///   - readFile: returns a file's bytes, or nil if there is none. Called on any thread.
    public init(loop: EventLoop, shares: Shares, readFile: @escaping @Sendable (_ path: String) throws -> [UInt8]?) {
        (self.loop, self.shares, self.readFile) = (loop, shares, readFile)
    }

    /// Returns a file's bytes, or nil if there is none.
    /// - Throws: `BrokerError` if the owners have too many requests; `TooSlow`; or an error of the folder.
    func read(_ path: String, for owners: Owners) async throws -> [UInt8]? {
        let request: Charge
        do throws(Shortage) { request = try shares.charge(.logRequests, to: owners) } catch { throw BrokerError(error) }
        defer { shares.refund(request) }
        return try await withCheckedThrowingContinuation { continuation in
            lastNumber += 1
            let number = lastNumber
            let timeout = loop.after(Self.longestMs) { self.assumeIsolated { $0.answer(number, .failure(TooSlow())) } }
            requests[number] = Request(path: path, owners: owners, timeout: timeout, continuation: continuation)
            waiting[owners.payer, default: []].append(number)
            startReads(of: owners.payer)
        }
    }

    /// Starts the reads of a payer up to its share.
    private func startReads(of payer: Owner) {
        guard let line = waiting.removeValue(forKey: payer) else { return }
        var rest = line[...]
        while let number = rest.first {
            if let request = requests[number] {
                // This asks before it charges, because a request that waits is not refused.
                guard shares.allows(.logReads, to: request.owners),
                    let read = try? shares.charge(.logReads, to: request.owners)
                else { break }
                start(number, request.path, read)
            }
            rest.removeFirst()
        }
        if !rest.isEmpty { waiting[payer] = Array(rest) }
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
        for payer in Array(waiting.keys) { startReads(of: payer) }
    }

    /// Answers a request, unless it was answered before.
    private func answer(_ number: UInt64, _ result: Result<[UInt8]?, any Error>) {
        guard let request = requests.removeValue(forKey: number) else { return }
        loop.cancel(request.timeout)
        shorten(request.owners.payer)
        request.continuation.resume(with: result)
    }

    /// Removes the first requests of a line that have had their answer. Others do so only when a read ends, and on a disk that hangs none does.
    private func shorten(_ payer: Owner) {
        guard let line = waiting[payer] else { return }
        let rest = line.drop { requests[$0] == nil }
        waiting[payer] = rest.isEmpty ? nil : Array(rest)
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
