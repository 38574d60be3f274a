import EventLoop
import HTTP1
import Shares

/// Requests, messages and TLS handshakes of one turn of the loop, and those that wait for the next turn.
struct Turn {
    enum Waiting {
        case request(ConnectionID)
        case stream(HTTP2Stream, ConnectionID)
        case message(Owners, cost: Int, CheckedContinuation<Void, Never>)
        case handshake(ConnectionID)
    }

    /// The cost of one flight of a TLS handshake, in requests.
    static let handshakeCost = 8

    var number: UInt64 = 1
    var isCounting = false
    /// By payer, in order of arrival.
    var waiting: [Owner: [Waiting]] = [:]
    /// Payers over their share of a turn while others are active. They pause, so that the store's threads can run.
    var paused: Set<Owner> = []
    private var last: (payer: Owner, atMs: UInt64)?
    private var contendedUntil: UInt64 = 0

    /// The weight of a request while several payers are active. The table's shares are for a single active payer.
    static let contendedWeight = 8
    /// How long a payer counts as active after a request.
    static let contentionMs: UInt64 = 100
    static let pauseMs: UInt64 = 2

    /// How a request is charged. `isFirst`: the end of the turn must be scheduled. `waits`: earlier requests of its payer wait.
    struct Admission {
        let number: UInt64
        let weight: Int
        let isFirst, waits: Bool
    }

    /// Records a request. This is one call because every access to a property of an actor is checked.
    mutating func admit(_ payer: Owner, _ now: UInt64) -> Admission {
        if let last, last.payer != payer { contendedUntil = max(contendedUntil, last.atMs + Self.contentionMs) }
        last = (payer, now)
        let admission = Admission(number: number, weight: weight(now), isFirst: !isCounting, waits: waiting[payer] != nil)
        isCounting = true
        return admission
    }

    func weight(_ now: UInt64) -> Int { isContended(now) ? Self.contendedWeight : 1 }

    func isContended(_ now: UInt64) -> Bool { now < contendedUntil }
}

// A payer with many requests waits, so that others get a turn.
extension HTTPServer {
    /// Returns a request's owners. Behind a trusted proxy the payer is the request's origin, and the proxy's connection is not charged.
    func owners(of request: HTTPRequest, _ connection: Connection) -> Owners {
        var owners = connection.owners
        if owners.payer.isProxy {
            let origin = configuration.origin(request)
            let payer = configuration.payer(origin).flatMap { $0.isProxy ? nil : $0 }
            owners.payer = payer ?? configuration.shares.network(origin)
            owners.connection = nil
        }
        dominance.add(connection.owners.payer)
        return owners
    }

    func takesTurn(_ owners: Owners, _ cost: Int = 1) -> Bool {
        let admission = turn.admit(owners.payer, loop.now)
        if admission.isFirst { loop.atEndOfTurn { self.endTurn() } }
        // Earlier requests go first.
        return !admission.waits && charge(owners, cost * admission.weight, admission.number)
    }

    func takesTurn(_ request: HTTPRequest) -> Bool { takesTurn(request.owners, cost(ofBytes: request.bodyCount)) }

    /// A long body takes longer to read.
    private func cost(ofBytes count: Int) -> Int { 1 + count / (configuration.limits.bodyBytes + 1) }

    /// Returns when a WebSocket's next message may be handled.
    func awaitTurn(_ owners: Owners, bytes: Int) async {
        let cost = cost(ofBytes: bytes)
        if takesTurn(owners, cost) { return }
        await withCheckedContinuation { wait(.message(owners, cost: cost, $0), owners) }
    }

    /// Returns true if the peer's next handshake bytes may be read now. Otherwise they are read in a later turn.
    func takesHandshakeTurn(_ connection: Connection) -> Bool {
        switch connection.handshakeTurn {
        case .granted:
            connection.handshakeTurn = .none
            return true
        case .awaited: return false
        case .none:
            let owners = Owners(connection.owners.payer)
            if takesTurn(owners, Turn.handshakeCost) { return true }
            connection.handshakeTurn = .awaited
            wait(.handshake(connection.id), owners)
            return false
        }
    }

    private func charge(_ owners: Owners, _ cost: Int) -> Bool { charge(owners, cost * weight, turn.number) }

    private func charge(_ owners: Owners, _ amount: Int, _ number: UInt64) -> Bool {
        // A single request always fits.
        let amount = min(amount, owners.connection == nil ? mostInTurn : mostOfConnectionInTurn)
        return (try? configuration.shares.charge(.requestsInTurn, amount, to: owners, now: number)) != nil
    }

    private var weight: Int { turn.weight(loop.now) }

    func wait(_ request: Turn.Waiting, _ owners: Owners) { turn.waiting[owners.payer, default: []].append(request) }

    /// Schedules the end of this turn's count.
    private func count() {
        guard !turn.isCounting else { return }
        turn.isCounting = true
        loop.atEndOfTurn { self.endTurn() }
    }

    private func endTurn() {
        turn.number += 1
        turn.isCounting = false
        let isContended = turn.isContended(loop.now)
        for payer in Array(turn.waiting.keys) where !turn.paused.contains(payer) {
            if isContended { pause(payer) } else { startWaiting(of: payer) }
        }
    }

    private func pause(_ payer: Owner) {
        turn.paused.insert(payer)
        loop.after(Turn.pauseMs) {
            self.turn.paused.remove(payer)
            self.startWaiting(of: payer)
        }
    }

    /// Starts waiting requests of a payer up to its share of the turn.
    private func startWaiting(of payer: Owner) {
        guard let requests = turn.waiting.removeValue(forKey: payer) else { return }
        count()
        var left: [Turn.Waiting] = []
        var isOver = false
        for request in requests where isOver || !start(request) {
            left.append(request)
            isOver = isOver || !configuration.shares.allows(.requestsInTurn, weight, to: Owners(payer), now: turn.number)
        }
        // The end of a handshake can start a request that waits in its turn.
        left += turn.waiting[payer] ?? []
        if !left.isEmpty { turn.waiting[payer] = left }
    }

    /// - Returns: false if the request must keep waiting.
    private func start(_ waiting: Turn.Waiting) -> Bool {
        switch waiting {
        case .request(let id):
            guard let http1 = connection(id)?.http1, let request = http1.exchange.request else { return true }
            guard charge(request.owners, cost(ofBytes: request.bodyCount)) else { return false }
            http1.start(request, on: self)
        case .stream(let stream, let id):
            guard let request = stream.request else { return true }
            guard charge(request.owners, cost(ofBytes: request.bodyCount)) else { return false }
            guard let http2 = connection(id)?.http2 else {
                stream.request = nil
                stream.refund(configuration.shares)
                break
            }
            http2.start(stream, on: self)
        case .message(let owners, let cost, let continuation):
            guard charge(owners, cost) else { return false }
            continuation.resume()
        case .handshake(let id):
            guard let connection = connection(id), connection.handshakeTurn == .awaited else { return true }
            guard charge(Owners(connection.owners.payer), Turn.handshakeCost) else { return false }
            connection.handshakeTurn = .granted
            connection.advance(on: self)
        }
        return true
    }
}

/// Detects whether most requests come from one network, in constant memory. Boyer and Moore's majority vote over one window finds a suspect, and the
/// next window counts its requests.
struct Dominance {
    private var candidate: Owner?
    private var votes = 0
    private var suspect: Owner?
    private var hits = 0
    private var total = 0
    /// Windows with fewer requests have no result.
    static let fewest = 1_000

    mutating func add(_ payer: Owner) {
        total += 1
        if payer == suspect { hits += 1 }
        if votes == 0 {
            (candidate, votes) = (payer, 1)
        } else {
            votes += payer == candidate ? 1 : -1
        }
    }

    /// Ends a window.
    /// - Returns: whether most of its requests came from one network that is neither a trusted proxy nor a back end.
    mutating func endWindow() -> Bool {
        let isDominated = suspect?.isNetwork == true && total >= Self.fewest && 2 * hits > total
        (suspect, candidate) = (candidate, nil)
        (votes, hits, total) = (0, 0, 0)
        return isDominated
    }
}
