@testable import Policy

/// Policy files: lint finds something in every file that is refused.
enum PolicyFuzz {
    static func run(_ input: [UInt8]) {
        require(Policy.lint(input).isEmpty == ((try? Policy(input)) != nil), "lint finds why a file is refused")
    }
}
