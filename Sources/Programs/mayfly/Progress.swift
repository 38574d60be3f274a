import Ledger
import Linux
import Synchronization

/// One line on standard error that is rewritten while a command works. Nothing is written if standard error is not a terminal.
enum Progress {
    private static let isShown = Mutex(false)

    static func show(_ text: String) {
        guard Standard.errorIsTerminal else { return }
        isShown.withLock { $0 = true }
        Standard.error("\r\u{1b}[K\(text)")
    }

    /// Removes the line. Must precede other output.
    static func clear() {
        let wasShown = isShown.withLock { isShown in
            defer { isShown = false }
            return isShown
        }
        if wasShown { Standard.error("\r\u{1b}[K") }
    }
}

/// A log whose reading is shown as progress.
struct ShownSource: LogSource {
    private struct State {
        var size: UInt64 = 0
        var bundles: UInt64 = 0
        var shownAtMs: UInt64 = 0
    }

    private final class Box: Sendable { let state = Mutex(State()) }

    private static let pauseMs: UInt64 = 100

    private let source: any LogSource
    private let box = Box()

    init(_ source: any LogSource) { self.source = source }

    func read(_ path: String) async throws -> [UInt8]? {
        guard let bytes = try await source.read(path) else { return nil }
        if path == TilePath.checkpoint {
            let head = SignedNote(bytes).flatMap { Checkpoint(text: $0.text) }
            box.state.withLock { $0.size = head?.size ?? 0 }
        } else if path.hasPrefix("tile/entries/") {
            showNext()
        }
        return bytes
    }

    func list(_ folder: String) async throws -> [String]? { try await source.list(folder) }

    private func showNext() {
        let now = Clock.monotonicMs
        let line: String? = box.state.withLock { state in
            state.bundles += 1
            guard now >= state.shownAtMs + Self.pauseMs else { return nil }
            state.shownAtMs = now
            return "\(min(state.bundles * UInt64(TilePath.fullWidth), state.size)) of \(state.size) entries"
        }
        if let line { Progress.show(line) }
    }
}
