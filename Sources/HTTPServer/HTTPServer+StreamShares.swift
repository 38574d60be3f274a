import EventLoop
import HTTP2
import Linux
import Shares

// Charges for HTTP/2 requests, and for answers that peers don't read.
extension HTTPServer {
    /// Bytes that requests and answers hold.
    var streamBytes: Int { configuration.shares.used(.streamBytes) }

    /// Charges a new stream, or refuses it.
    /// - Parameter bytes: what it holds at first.
    func open(_ stream: Int32, isHead: Bool, _ bytes: Int, _ connection: Connection, _ table: StreamTable) -> Bool {
        table.streams[stream] = StreamTable.Stream(sinceMs: loop.now, isHead: isHead)
        do throws(Shortage) {
            let place = try charge(.streams, 1, connection)
            table.streams[stream]?.place = place
            table.streams[stream]?.bytes = try charge(.streamBytes, bytes, connection)
            return true
        } catch {
            if let place = table.streams[stream]?.place { configuration.shares.refund(place) }
            table.streams[stream]?.place = nil
            refuse(stream, Refusal(error), connection, table)
            return false
        }
    }

    private func charge(_ resource: Resource, _ amount: Int, _ connection: Connection) throws(Shortage) -> Charge {
        while true {
            do throws(Shortage) {
                return try configuration.shares.charge(resource, amount, to: connection.owners)
            } catch {
                guard makeRoom(error, resource, amount, for: connection) else { throw error }
            }
        }
    }

    /// Changes by `more` bytes what a stream is charged.
    func charge(_ more: Int, _ stream: Int32, _ connection: Connection, _ table: StreamTable) -> Shortage? {
        guard more != 0, var charge = table.streams[stream]?.bytes else { return nil }
        defer { table.streams[stream]?.bytes = charge }
        if more < 0 {
            configuration.shares.shrink(&charge, by: -more)
            return nil
        }
        while true {
            do throws(Shortage) {
                try configuration.shares.grow(&charge, by: more)
                return nil
            } catch {
                guard makeRoom(error, .streamBytes, more, for: connection) else { return error }
            }
        }
    }

    /// Charges a whole request to whom a trusted proxy passed it on for, in the proxy's place.
    func charge(_ stream: Int32, to payer: Owner, _ connection: Connection, _ table: StreamTable) -> Shortage? {
        guard connection.owners.payer.isProxy, let state = table.streams[stream] else { return nil }
        for charge in [state.place, state.bytes] {
            guard let charge else { continue }
            do throws(Shortage) {
                let moved = try configuration.shares.charge(charge.resource, charge.amount, to: Owners(payer))
                if charge.resource == .streams { state.place = moved } else { state.bytes = moved }
                configuration.shares.refund(charge)
            } catch { return error }
        }
        return nil
    }

    func release(_ stream: Int32, _ table: StreamTable) {
        guard let state = table.streams.removeValue(forKey: stream) else { return }
        if let bytes = state.bytes { configuration.shares.refund(bytes) }
        if let place = state.place { configuration.shares.refund(place) } else { table.uncharged -= 1 }
    }

    // MARK: Stalled streams

    /// Ends the stream that has stalled longest: one of this connection if only the connection is over its share, one of its payer if that is,
    /// and any if everything is in use.
    /// - Returns: false if none has stalled.
    private func makeRoom(_ shortage: Shortage, _ resource: Resource, _ amount: Int, for connection: Connection) -> Bool {
        while !stalled.isEmpty {
            guard let slot = victim(shortage, resource, amount, connection) else { return false }
            guard let victim = slots[Int(slot)], let table = victim.streams, let stream = longestStalled(table) else {
                stalled.remove(slot)
                if slot == connection.id.slot { return false }
                continue
            }
            if victim.isBlocked, victim !== connection {
                drop(victim)
            } else {
                try? table.session.reset(stream: stream, .cancel)
                release(stream, table)
                markDirty(victim)
            }
            return true
        }
        return false
    }

    private func victim(_ shortage: Shortage, _ resource: Resource, _ amount: Int, _ connection: Connection) -> Int32? {
        if case .exhausted = shortage { return stalled.longest() }
        let payer = connection.owners.payer
        let isConnections = configuration.shares.allows(resource, amount, to: Owners(payer))
        return isConnections ? connection.id.slot : stalled.longest(of: payer)
    }

    private func longestStalled(_ table: StreamTable) -> Int32? {
        noteProgress(table)
        let sending = table.streams.filter {
            $0.value.phase == .sending && loop.now - $0.value.stalledSinceMs >= configuration.stallMs
        }
        return sending.min { ($0.value.stalledSinceMs, $0.key) < ($1.value.stalledSinceMs, $1.key) }?.key
    }

    private func noteProgress(_ table: StreamTable) {
        for (stream, state) in table.streams where state.phase == .sending {
            let sent = table.session.sentBytes(stream: stream)
            guard sent > state.sent else { continue }
            table.streams[stream]?.sent = sent
            table.streams[stream]?.stalledSinceMs = loop.now
        }
    }

    /// Keeps the list of stalled connections.
    func noteStalls(_ connection: Connection, _ table: StreamTable) {
        if longestStalled(table) != nil {
            stalled.add(connection.id.slot, connection.owners.payer, nowMs: loop.now)
        } else {
            stalled.remove(connection.id.slot)
        }
    }

    // MARK: Answers over HTTP/1.1

    /// Charges what the peer does not read. A peer over its share loses the connection.
    func holdBlocked(_ connection: Connection) {
        if let table = connection.streams {
            if table.isAnswering { stalled.add(connection.id.slot, connection.owners.payer, nowMs: loop.now) }
            return
        }
        guard connection.session == nil, connection.blockedBytes == nil else { return }
        do throws(Shortage) {
            connection.blockedBytes = try configuration.shares.charge(
                .streamBytes, connection.queuedBytes, to: Owners(connection.owners.payer))
        } catch {
            statistics.refusals += 1
            connection.socket.resetOnClose()
            drop(connection)
        }
    }

    func releaseBlocked(_ connection: Connection) {
        if let charge = connection.blockedBytes.take() { configuration.shares.refund(charge) }
    }
}
