public import Vocabulary

/// A file of the log: a path below its folder, and the bytes that it has for ever.
public struct LogFile: Sendable, Hashable {
    public var path: String
    public var bytes: [UInt8]

    public init(path: String, bytes: [UInt8]) { (self.path, self.bytes) = (path, bytes) }
}

/// What one publication adds: the files to write before a checkpoint of `newSize` and `root` may be shown.
public struct PublicationPlan: Sendable {
    public let oldSize: UInt64
    public let newSize: UInt64
    public let root: Digest
    /// Full and partial tiles and bundles.
    public let files: [LogFile]
    /// The log after the publication, to append the next batch to.
    public let log: TileLog
}
