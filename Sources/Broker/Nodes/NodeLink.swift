public import Ledger
public import Sealing

/// How a node reaches the other nodes of its deployment. An address is one that a node has put into the lease.
public protocol NodeLink: Sendable {
    /// Asks a node for its keys. It answers when they differ from those of the request, or after some seconds.
    func keys(of address: String, _ request: KeyRequest) async throws(LinkFailure) -> KeyAnswer

    /// Returns the log of a node. Its reads throw `LinkFailure`.
    func log(of address: String) -> any LogSource
}

/// A node's question for the keys of another one.
public struct KeyRequest: Sendable {
    /// The name of the node that asks.
    public let name: EntryText
    /// The edition that it has, or 0.
    public let edition: UInt64
    /// The keys are sealed for this key (`KeyReceiver`).
    public let publicKey: [UInt8]

    public init(name: EntryText, edition: UInt64, publicKey: [UInt8]) {
        (self.name, self.edition, self.publicKey) = (name, edition, publicKey)
    }
}

public enum KeyAnswer: Sendable {
    case unchanged
    case changed(SealedKeys)
}

/// Another node could not be reached, or refused to answer.
public struct LinkFailure: Error, Sendable, CustomStringConvertible {
    public let description: String

    public init(_ description: String) { self.description = description }
}
