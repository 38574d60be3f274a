import CLinux
import Glibc

extension ChildProcess {
    /// What a program that was run for its output came to.
    public enum Outcome: Sendable, Equatable {
        /// So many bytes were read. As many as there is room for: there may have been more.
        case ended(Exit, count: Int)
        /// It was killed, with what it had started in its process group.
        case tooSlow
    }

    /// Runs a program to its end and reads its standard output straight into `output`, which may be locked memory: nothing of it lies
    /// elsewhere in this process. Its standard input is empty, its standard error thrown away, its environment this process's own. Blocks.
    /// - Parameter path: of the program; no shell, and no search for it.
    public static func read(
        _ path: String, arguments: [String], into output: inout MutableSpan<UInt8>, deadlineMs: UInt64
    ) throws(Errno) -> Outcome {
        let deadline = Clock.monotonicMs + deadlineMs
        var ends: [Int32] = [-1, -1]
        let made = unsafe ends.withUnsafeMutableBufferPointer { unsafe pipe2($0.baseAddress!, O_CLOEXEC) }
        guard made == 0 else { throw .last("pipe") }
        let pipe = Descriptor(owning: ends[0])
        let child = try spawn(path, arguments, output: Descriptor(owning: ends[1]))
        var count: Int?
        do throws(Errno) {
            count = try fill(&output, from: pipe, until: deadline)
        } catch {
            _ = try? child.endGroup()
            throw error
        }
        guard let count else { return try child.endGroup() }
        while true {
            if let exit = try child.poll() { return .ended(exit, count: count) }
            guard Clock.monotonicMs < deadline else { return try child.endGroup() }
            _ = Glibc.poll(nil, 0, 5)
        }
    }

    /// Reads until the end, or until there is no more room, and closes the pipe, so that a child which goes on writing ends.
    /// - Returns: how many bytes came; nil when the time is over.
    private static func fill(
        _ output: inout MutableSpan<UInt8>, from pipe: consuming Descriptor, until deadline: UInt64
    ) throws(Errno) -> Int? {
        var count = 0
        while count < output.count {
            guard wait(for: pipe, until: deadline) else { return nil }
            let got = unsafe output.withUnsafeMutableBytes { bytes in
                let (start, size) = unsafe (bytes.baseAddress! + count, bytes.count - count)
                return retrying { unsafe Glibc.read(pipe.raw, start, size) }
            }
            guard got >= 0 else { throw .last("read from a program") }
            if got == 0 { break }
            count += got
        }
        return count
    }

    private static func wait(for pipe: borrowing Descriptor, until deadline: UInt64) -> Bool {
        while true {
            let now = Clock.monotonicMs
            guard now < deadline else { return false }
            var ready = pollfd(fd: pipe.raw, events: Int16(POLLIN), revents: 0)
            // A signal or the end of the time: looked at above.
            if unsafe Glibc.poll(&ready, 1, Int32(clamping: deadline - now)) > 0 { return true }
        }
    }

    private func endGroup() throws(Errno) -> Outcome {
        _ = kill(-id, SIGKILL)
        _ = try wait()
        return .tooSlow
    }
}
