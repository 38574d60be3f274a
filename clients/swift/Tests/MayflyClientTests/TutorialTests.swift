import Foundation
import Testing

/// The code of tutorial and README is that of the example, or of `PrintedCodeTests.swift`. Both are compiled.
struct TutorialTests {
    @Test func itsCodeIsInTheExample() throws {
        let package = URL(fileURLWithPath: #filePath).appending(path: "../../..").standardized
        var code = ""
        for folder in ["Examples/RoomsSkeleton", "Examples/Shared"].map({ package.appending(path: $0) }) {
            for file in try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil) {
                code += normal(try String(contentsOf: file, encoding: .utf8))
            }
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
