#if os(Linux)
    import Foundation
    import Testing

    @testable import MayflyClient

    /// The example app in a process of its own, with a person who types and reads.
    final class App: @unchecked Sendable {
        private let process: Process
        private let input: Pipe
        private let lock = NSLock()
        private var text = ""

        /// - Parameters:
        ///   - name: the program's.
        ///   - folder: where this phone keeps its values. It must exist.
        init(_ name: String, _ broker: TestBroker, keeping folder: URL) throws {
            let output: Pipe
            (process, input, output) = try TestBroker.starting.withLock {
                let (process, input, output) = (Process(), Pipe(), Pipe())
                process.executableURL = Self.products.appending(path: name)
                process.arguments = [broker.url.absoluteString, folder.path]
                (process.standardInput, process.standardOutput) = (input, output)
                try process.run()
                return (process, input, output)
            }
            output.fileHandleForReading.readabilityHandler = { [weak self] handle in
                let data = handle.availableData
                guard let self, !data.isEmpty else {
                    handle.readabilityHandler = nil
                    return
                }
                lock.withLock { self.text += String(decoding: data, as: UTF8.self) }
            }
        }

        deinit { if process.isRunning { kill(process.processIdentifier, SIGKILL) } }

        private static var products: URL {
            URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
        }

        /// Hands the app a push as iOS does, and returns its identifier, which is its collapse id.
        @discardableResult
        func push(_ payload: [AnyHashable: Any]) throws -> String {
            let id = ["roomId", "requestId", "sessionId"].lazy.compactMap { payload[$0] as? String }.first ?? "push"
            type("push \(id) \(try json(payload))")
            return id
        }

        /// Hands the app a push of PushKit.
        func ring(_ payload: [AnyHashable: Any]) throws { type("ring \(try json(payload))") }

        private func json(_ payload: [AnyHashable: Any]) throws -> String {
            String(decoding: try JSONSerialization.data(withJSONObject: payload), as: UTF8.self)
        }

        func type(_ line: String) { input.fileHandleForWriting.write(Data("\(line)\n".utf8)) }

        /// Waits for a line with this beginning, forgets the lines up to it, and returns what follows the beginning.
        @discardableResult
        func read(_ beginning: String) async throws -> String {
            do {
                return try await eventually { take(beginning) }
            } catch {
                throw Failure(description: "no line \(beginning) in 20 s, but \(lock.withLock { text })")
            }
        }

        private func take(_ beginning: String) -> String? {
            lock.withLock {
                let lines = text.components(separatedBy: "\n")
                guard let index = lines.dropLast().firstIndex(where: { $0.hasPrefix(beginning) }) else { return nil }
                text = lines[(index + 1)...].joined(separator: "\n")
                return String(lines[index].dropFirst(beginning.count))
            }
        }

        func suspend() { kill(process.processIdentifier, SIGSTOP) }
        func resume() { kill(process.processIdentifier, SIGCONT) }

        /// Ends the app at once, as iOS does in the background.
        func terminate() {
            kill(process.processIdentifier, SIGKILL)
            let end = Date.now.addingTimeInterval(10)
            while process.isRunning, Date.now < end { Thread.sleep(forTimeInterval: 0.01) }
        }
    }

    /// A phone, on which one process of an app after the other keeps its values.
    final class Phone {
        let broker = TestBroker.shared
        let folder = FileManager.default.temporaryDirectory.appending(path: "mayfly-phone-\(UUID().uuidString)")

        init() throws { try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false) }

        deinit { try? FileManager.default.removeItem(at: folder) }

        func launch(_ name: String = "RoomsSkeleton") throws -> App { try App(name, broker, keeping: folder) }

        var keptText: String { get throws { try kept.map { try String(contentsOf: $0, encoding: .utf8) }.joined() } }

        /// The kept files, in any order.
        var kept: [URL] {
            get throws { try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil) }
        }
    }
#endif
