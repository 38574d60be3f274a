import Foundation
import Testing

@testable import Mayfly

/// The example app in a process of its own, with a person who types and reads.
final class App: @unchecked Sendable {
    private let process = Process()
    private let input = Pipe()
    private let lock = NSLock()
    private var text = ""

    init(_ broker: TestBroker) throws {
        let output = Pipe()
        process.executableURL = Self.products.appending(path: "RoomsSkeleton")
        process.arguments = [broker.url.absoluteString]
        (process.standardInput, process.standardOutput) = (input, output)
        output.fileHandleForReading.readabilityHandler = { [weak self] handle in
            let data = handle.availableData
            guard let self, !data.isEmpty else {
                handle.readabilityHandler = nil
                return
            }
            lock.withLock { self.text += String(decoding: data, as: UTF8.self) }
        }
        try process.run()
    }

    deinit {
        resume()
        try? input.fileHandleForWriting.close()
        process.waitUntilExit()
    }

    private static var products: URL {
        #if os(macOS)
            Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }!.bundleURL.deletingLastPathComponent()
        #else
            URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
        #endif
    }

    func type(_ line: String) { input.fileHandleForWriting.write(Data("\(line)\n".utf8)) }

    /// Waits for a line with this beginning, forgets the lines up to it, and returns what follows the beginning.
    @discardableResult
    func read(_ beginning: String) async throws -> String {
        try await eventually("\(beginning) in \(lock.withLock { text })") { take(beginning) }
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
}

struct SkeletonTests {
    /// Two people, from the code to the room's end: a new token, a suspended app, a push, a tap, a deletion.
    @Test func theStoryOfARoom() async throws {
        let broker = TestBroker.shared
        let (ann, ben) = (try App(broker), try App(broker))
        let (old, new, bens) = (PushToken.random(), PushToken.random(), PushToken.random())
        ann.type("token \(old.hex)")
        ann.type("create Ben")
        let code = try await ann.read("code ")
        ann.type("token \(new.hex)")
        try await ann.read("done token")
        ann.type("open Ben")
        try await ann.read("waiting for Ben")

        ben.type("token \(bens.hex)")
        ben.type("accept \(code.lowercased()) Ann")
        try await ben.read("done accept")
        try await ann.read("Ben used the code")
        // A socket that joined within the last 2 s counts as alive.
        try await Task.sleep(for: .milliseconds(2_200))

        ann.suspend()
        ben.type("open Ann")
        try await ben.read("Ann is here")
        try await ben.read("Ann is away, and gets a push")
        let push = try await broker.push(to: new)
        #expect(try await broker.pushes(to: old).isEmpty)

        ann.resume()
        let handle = try #require(push.payload.roomId)
        ann.type("tap \(handle)")
        try await ann.read("push about Ben")
        try await ann.read("Ben is here")
        try await ben.read("Ann came")
        ann.type("background")
        try await ben.read("Ann left")
        ann.type("foreground")
        try await ben.read("Ann came")

        ann.type("delete Ben")
        try await ann.read("deleted, 2 tokens destroyed")
        try await ben.read("the chat is over")
        ann.type("tap \(handle)")
        try await ann.read("unknown push")
        ben.type("delete Ann")
        try await ben.read("unknown chat")
    }
}

/// The tutorial's code is the example's, which is compiled.
struct TutorialTests {
    @Test func itsCodeIsInTheExample() throws {
        let package = URL(fileURLWithPath: #filePath).appending(path: "../../..").standardized
        let example = package.appending(path: "Examples/RoomsSkeleton")
        var code = ""
        for name in try FileManager.default.contentsOfDirectory(atPath: example.path) {
            code += normal(try String(contentsOf: example.appending(path: name), encoding: .utf8))
        }
        var blocks = 0
        for article in ["Sources/Mayfly/Mayfly.docc/FromNothingToAPush.md", "README.md"] {
            let text = try String(contentsOf: package.appending(path: article), encoding: .utf8)
            for block in text.components(separatedBy: "```swift\n").dropFirst() {
                let snippet = normal(try #require(block.components(separatedBy: "```").first))
                #expect(code.contains(snippet), "\(article) has code that the example lacks:\n\(snippet)")
                blocks += 1
            }
        }
        #expect(blocks >= 6)
    }

    /// Lines without indentation, and without empty ones.
    private func normal(_ text: String) -> String {
        text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) + "\n" }.filter { $0 != "\n" }.joined()
    }
}
