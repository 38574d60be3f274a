import Linux

/// A PostgreSQL of one test's own, which it may crash and exchange (scripts/postgres).
public struct PostgresServer: Sendable {
    public let uri: String
    public let folder: String

    public struct Failed: Error { let arguments: [String] }

    public init() throws {
        folder = try Self.run(["folder"])
        uri = try Self.run(["start", folder])
    }

    /// Ends all sessions, like a crash, and starts the server again.
    public func crash() throws { _ = try Self.run(["crash", folder]) }

    /// Copies the server as it is now, for `swap`.
    public func keep() throws { _ = try Self.run(["keep", folder]) }

    /// Exchanges the server and its copy, as in a failover to a server that lacks commits.
    public func swap() throws { _ = try Self.run(["swap", folder]) }

    public func stop() throws { _ = try Self.run(["stop", folder]) }

    /// - Returns: what the script prints.
    private static func run(_ arguments: [String]) throws -> String {
        let root = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        var output = [UInt8](repeating: 0, count: 4_096)
        var span = output.mutableSpan
        guard
            case .ended(.status(0), let count) = try ChildProcess.read(
                "/bin/bash", arguments: ["/\(root)/scripts/postgres"] + arguments, into: &span, deadlineMs: 60_000)
        else { throw Failed(arguments: arguments) }
        return String(decoding: output[..<count], as: UTF8.self).split(separator: "\n").first.map(String.init) ?? ""
    }
}
