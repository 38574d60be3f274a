import EventLoop

/// Which sockets are in which room. No secret is held here.
struct SocketRegister {
    struct Place {
        let room: [UInt8]
        let slot: UInt8
    }

    private var places: [UInt64: Place] = [:]
    private var rooms: [[UInt8]: Set<UInt64>] = [:]
    /// What ends a room's sockets when the room expires.
    private var endings: [[UInt8]: TimerID] = [:]

    var count: Int { places.count }

    subscript(socket: UInt64) -> Place? { places[socket] }

    /// - Returns: whether this is the room's first socket.
    mutating func add(_ socket: UInt64, _ place: Place) -> Bool {
        places[socket] = place
        return rooms[place.room, default: []].insert(socket).inserted && rooms[place.room]?.count == 1
    }

    /// - Returns: where the socket was, and the timer to cancel if it was the room's last.
    mutating func remove(_ socket: UInt64) -> (place: Place, ending: TimerID?)? {
        guard let place = places.removeValue(forKey: socket) else { return nil }
        rooms[place.room]?.remove(socket)
        guard rooms[place.room]?.isEmpty == true else { return (place, nil) }
        rooms[place.room] = nil
        return (place, endings.removeValue(forKey: place.room))
    }

    mutating func setEnding(_ timer: TimerID, of room: [UInt8]) { endings[room] = timer }

    func sockets(in room: [UInt8], slot: UInt8? = nil) -> [UInt64] {
        rooms[room, default: []].filter { slot == nil || places[$0]?.slot == slot }
    }
}
