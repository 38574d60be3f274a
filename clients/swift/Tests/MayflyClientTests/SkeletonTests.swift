import Foundation
import Testing

@testable import MayflyClient

/// The example app in a process of its own, with a person who types and reads.
final class App: @unchecked Sendable {
    private let process: Process
    private let input: Pipe
    private let lock = NSLock()
    private var text = ""

    /// - Parameter folder: where this phone keeps its chats. It must exist.
    init(_ broker: TestBroker, keeping folder: URL) throws {
        let output: Pipe
        (process, input, output) = try TestBroker.starting.withLock {
            let (process, input, output) = (Process(), Pipe(), Pipe())
            process.executableURL = Self.products.appending(path: "RoomsSkeleton")
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

    /// Ends the app at once, as iOS does in the background.
    func terminate() {
        kill(process.processIdentifier, SIGKILL)
        let end = Date.now.addingTimeInterval(10)
        while process.isRunning, Date.now < end { Thread.sleep(forTimeInterval: 0.01) }
    }
}

/// A phone, on which one app after the other keeps its chats.
final class Phone {
    let broker = TestBroker.shared
    let folder = FileManager.default.temporaryDirectory.appending(path: "mayfly-phone-\(UUID().uuidString)")

    init() throws { try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false) }

    deinit { try? FileManager.default.removeItem(at: folder) }

    func launch() throws -> App { try App(broker, keeping: folder) }

    var keptText: String { get throws { try kept.map { try String(contentsOf: $0, encoding: .utf8) }.joined() } }

    /// The files of kept chats, in any order.
    var kept: [URL] { get throws { try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil) } }
}

struct SkeletonTests {
    /// Two people, from the code to the room's end: a new token, a suspended app, a push, a tap, a deletion.
    @Test func theStoryOfARoom() async throws {
        let broker = TestBroker.shared
        let (annsPhone, bensPhone) = (try Phone(), try Phone())
        let (ann, ben) = (try annsPhone.launch(), try bensPhone.launch())
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
        // What ended is kept nowhere.
        #expect(try annsPhone.kept.isEmpty && bensPhone.kept.isEmpty)
    }

    /// iOS ends the app, a push comes, and the user taps it: the next process knows whose it is, and so does the notification extension.
    @Test func aTapAfterAColdStart() async throws {
        let broker = TestBroker.shared
        let (annsPhone, bensPhone) = (try Phone(), try Phone())
        let (first, ben) = (try annsPhone.launch(), try bensPhone.launch())
        let (old, new) = (PushToken.random(), PushToken.random())
        first.type("token \(old.hex)")
        first.type("create Ben")
        let code = try await first.read("code ")
        ben.type("accept \(code) Ann")
        try await ben.read("done accept")
        first.terminate()

        ben.type("open Ann")
        try await ben.read("waiting for Ann")
        let handle = try #require(try await broker.push(to: old).payload.roomId)

        let second = try annsPhone.launch()
        // The extension's process only reads.
        second.type("notification \(handle)")
        try await second.read("titled Ben")
        second.type("tap \(handle)")
        try await second.read("push about Ben")
        try await second.read("Ben is here")
        try await ben.read("Ann came")

        // A kept room gets each new token, and is kept again with its new ref.
        let before = try annsPhone.keptText
        second.type("token \(new.hex)")
        try await second.read("done token")
        let after = try annsPhone.keptText
        #expect(before.contains("\"ref\"") && after.contains("\"ref\"") && before != after)
        second.terminate()
        let third = try annsPhone.launch()
        third.type("off")
        try await third.read("pushes are off")
        third.type("delete Ben")
        try await third.read("deleted, 0 tokens destroyed")
        #expect(try annsPhone.kept.isEmpty)
    }

    /// One unreadable chat must not cost the others, nor be destroyed by a version of the app that can't read it.
    @Test func aDamagedChatLeavesTheOthers() async throws {
        let (annsPhone, bensPhone) = (try Phone(), try Phone())
        let (first, ben) = (try annsPhone.launch(), try bensPhone.launch())
        for name in ["Ben", "Bob"] {
            first.type("create \(name)")
            let code = try await first.read("code ")
            ben.type("accept \(code) \(name)s")
            try await ben.read("done accept")
            let plain = code.replacingOccurrences(of: "-", with: "")
            for file in try annsPhone.kept + bensPhone.kept {
                let text = try String(contentsOf: file, encoding: .utf8)
                #expect(!text.contains(plain) && !text.contains(code))
                #expect(try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? Int == 0o600)
            }
        }
        first.terminate()
        let bens = try #require(try annsPhone.kept.first { try String(contentsOf: $0, encoding: .utf8).contains("\"Ben\"") })
        let whole = try Data(contentsOf: bens)
        for damaged in [Data(), whole.prefix(whole.count / 2), Data([0xff, 0x00]), Data("[]".utf8)] {
            try damaged.write(to: bens)
            let app = try annsPhone.launch()
            app.type("open Bob")
            try await app.read("waiting for Bob")
            app.type("open Ben")
            try await app.read("unknown chat")
            app.terminate()
            #expect(try Data(contentsOf: bens) == damaged)
        }
        try whole.write(to: bens)
        let app = try annsPhone.launch()
        app.type("open Ben")
        try await app.read("waiting for Ben")
    }

    /// A day after a room's end nobody asks the broker about it.
    @Test func aChatWhoseTimeIsOverIsForgottenAtTheLaunch() async throws {
        let phone = try Phone()
        let first = try phone.launch()
        first.type("create Ben")
        try await first.read("done create")
        first.terminate()
        let file = try #require(try phone.kept.first)
        var chat = try #require(try JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any])
        var room = try #require(chat["room"] as? [String: Any])
        room["expiresAt"] = try #require(room["expiresAt"] as? Double) - 90_100
        chat["room"] = room
        try JSONSerialization.data(withJSONObject: chat).write(to: file)
        let second = try phone.launch()
        second.type("open Ben")
        try await second.read("unknown chat")
        #expect(try phone.kept.isEmpty)
    }
}

/// The code of tutorial and README is that of the example, or of `PrintedCodeTests.swift`. Both are compiled.
struct TutorialTests {
    @Test func itsCodeIsInTheExample() throws {
        let package = URL(fileURLWithPath: #filePath).appending(path: "../../..").standardized
        let example = package.appending(path: "Examples/RoomsSkeleton")
        var code = ""
        for name in try FileManager.default.contentsOfDirectory(atPath: example.path) {
            code += normal(try String(contentsOf: example.appending(path: name), encoding: .utf8))
        }
        let printed = package.appending(path: "Tests/MayflyClientTests/PrintedCodeTests.swift")
        code += normal(try String(contentsOf: printed, encoding: .utf8))
        var blocks = 0
        for article in ["Sources/MayflyClient/MayflyClient.docc/FromNothingToAPush.md", "README.md"] {
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
