@testable import Policy

/// Policy files: what is read is written in one way, and lint finds something in every file that is refused.
enum PolicyFuzz {
    static func run(_ input: [UInt8]) {
        if let value = try? JSONReader.read(input) {
            let written = write(value)
            guard let again = try? JSONReader.read(written) else { fatalError("what is written can be read") }
            require(write(again) == written, "one way of writing")
        }
        require(Policy.lint(input).isEmpty == ((try? Policy(input)) != nil), "lint finds why a file is refused")
    }

    private static func write(_ value: JSONValue) -> [UInt8] {
        var written: [UInt8] = []
        JSONWriter.append(value, to: &written)
        return written
    }
}
