/// The requests of a connection that are not whole yet, in the order in which they began; most of them end in that order, so that the first
/// is nearly always the one that is asked for.
struct ArrivingRequests {
    private var entries: [(stream: Int32, request: PushRequest?)] = []
    /// Where the first lies that has not been taken.
    private var first = 0

    mutating func add(_ request: PushRequest, _ stream: Int32) {
        // One that never ends must not keep the places of all that came after it.
        if entries.count - first > 4096 {
            entries.removeAll { $0.request == nil }
            first = 0
        }
        entries.append((stream, request))
    }

    mutating func append(_ body: [UInt8], _ stream: Int32) {
        guard let place = place(of: stream) else { return }
        entries[place].request?.body.append(contentsOf: body)
    }

    mutating func take(_ stream: Int32) -> PushRequest? {
        guard let place = place(of: stream) else { return nil }
        let request = entries[place].request.take()
        while first < entries.count, entries[first].request == nil { first += 1 }
        if first == entries.count {
            entries.removeAll(keepingCapacity: true)
            first = 0
        }
        return request
    }

    private func place(of stream: Int32) -> Int? {
        if first < entries.count, entries[first].stream == stream { return first }
        return entries[first...].firstIndex { $0.stream == stream && $0.request != nil }
    }
}
