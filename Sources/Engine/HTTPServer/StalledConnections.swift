import Shares

/// HTTP/2 connections with a stream that the peer doesn't read: one list per payer, the longest stalled first.
struct StalledConnections {
    private struct Node {
        var payer: Owner?
        var sinceMs: UInt64 = 0
        var previous: Int32 = -1
        var next: Int32 = -1
    }

    private var nodes: [Node] = []
    private var ends: [Owner: (first: Int32, last: Int32)] = [:]
    /// The number of payers compared to find the longest stalled of all.
    private static let compared = 64

    var isEmpty: Bool { ends.isEmpty }

    /// Appends the slot to its payer's list unless it is already there.
    mutating func add(_ slot: Int32, _ payer: Owner, nowMs: UInt64) {
        while slot >= nodes.count { nodes.append(Node()) }
        guard nodes[Int(slot)].payer == nil else { return }
        let last = ends[payer]?.last ?? -1
        nodes[Int(slot)] = Node(payer: payer, sinceMs: nowMs, previous: last, next: -1)
        if last >= 0 { nodes[Int(last)].next = slot }
        ends[payer] = (first: ends[payer]?.first ?? slot, last: slot)
    }

    mutating func remove(_ slot: Int32) {
        guard slot < nodes.count, let payer = nodes[Int(slot)].payer, var end = ends[payer] else { return }
        let node = nodes[Int(slot)]
        if node.previous >= 0 { nodes[Int(node.previous)].next = node.next } else { end.first = node.next }
        if node.next >= 0 { nodes[Int(node.next)].previous = node.previous } else { end.last = node.previous }
        ends[payer] = end.first < 0 ? nil : end
        nodes[Int(slot)] = Node()
    }

    /// Returns the payer's slot that has stalled longest.
    func longest(of payer: Owner) -> Int32? { ends[payer]?.first }

    /// Returns the slot that has stalled longest among all payers.
    func longest() -> Int32? {
        ends.values.prefix(Self.compared).map(\.first).min { nodes[Int($0)].sinceMs < nodes[Int($1)].sinceMs }
    }
}

// Stalled responses make room for new ones.
extension HTTPServer {
    /// Bytes of requests and responses in memory.
    var streamBytes: Int { configuration.shares.used(.streamBytes) }

    /// Ends the stream that has stalled longest. If only the connection is over its share, it is one of this connection. If the payer is over its
    /// share, it is one of the payer. If everything is in use, it is anyone's.
    /// - Returns: false if none has stalled.
    func makeRoom(_ shortage: Shortage, _ resource: Resource, _ amount: Int, for connection: Connection) -> Bool {
        while !stalled.isEmpty {
            guard let slot = victim(shortage, resource, amount, connection) else { return false }
            let http2 = self.connection(inSlot: slot)?.http2
            if let http2, http2.endLongestStalled(for: connection, on: self) { return true }
            stalled.remove(slot)
            if slot == connection.id.slot { return false }
        }
        return false
    }

    private func victim(_ shortage: Shortage, _ resource: Resource, _ amount: Int, _ connection: Connection) -> Int32? {
        if case .exhausted = shortage { return stalled.longest() }
        let payer = connection.owners.payer
        let isConnections = configuration.shares.allows(resource, amount, to: Owners(payer))
        return isConnections ? connection.id.slot : stalled.longest(of: payer)
    }
}
