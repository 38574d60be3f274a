import Linux

/// Where a log is read from: a folder, or a static file server.
public protocol LogSource: Sendable {
    /// The whole file at a path below the log's folder, nil if there is none. May throw any error; its text is shown to the auditor.
    func read(_ path: String) async throws -> [UInt8]?

    /// The names in a folder of the log, nil if this source can't tell.
    func list(_ folder: String) async throws -> [String]?
}

extension LogSource {
    public func list(_ folder: String) async throws -> [String]? { nil }
}

/// A log on this machine.
public struct FolderSource: LogSource {
    /// No file of a log is larger: 256 entries of 65,535 bytes.
    static let fileLimit = 256 * (2 + EntryBundle.entryLimit)

    public let path: String

    public init(_ path: String) { self.path = path }

    public func read(_ path: String) async throws -> [UInt8]? { try file(path) }

    public func list(_ folder: String) async throws -> [String]? {
        do throws(Errno) {
            return try File.list("\(self.path)/\(folder)")
        } catch {
            // A growing log drops it at any moment.
            if error.isMissing || error.isNoFile { return [] }
            throw error
        }
    }

    func file(_ path: String) throws(Errno) -> [UInt8]? {
        let place = "\(self.path)/\(path)"
        // Opening a pipe would wait for a writer, reading a device never end.
        guard let status = try File.status(place), status.kind == .file else { return nil }
        do throws(Errno) {
            return try File.read(place, limit: Self.fileLimit)
        } catch {
            if error.isMissing || error.isNoFile { return nil }
            throw error
        }
    }
}

/// A log behind a function, such as an HTTP client's GET.
public struct FunctionSource: LogSource {
    private let function: @Sendable (String) async throws -> [UInt8]?

    public init(_ function: @escaping @Sendable (_ path: String) async throws -> [UInt8]?) { self.function = function }

    public func read(_ path: String) async throws -> [UInt8]? { try await function(path) }
}
