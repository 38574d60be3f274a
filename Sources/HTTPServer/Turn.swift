import EventLoop
import Shares

/// Requests, messages and TLS handshakes of one turn of the loop, and those that wait for the next one.
struct Turn {
    enum Waiting {
        case request(ConnectionID)
        case stream(HTTP2Stream, ConnectionID)
        case message(Owners, CheckedContinuation<Void, Never>)
        case handshake(ConnectionID)
    }

    /// The cost of one flight of a TLS handshake, counted in requests.
    static let handshakeCost = 8

    var number: UInt64 = 1
    var isCounting = false
    /// By payer, in the order in which they came.
    var waiting: [Owner: [Waiting]] = [:]
    /// Payers over their share of a turn while others are active. They wait for a moment, so that the store's threads get to run.
    var resting: Set<Owner> = []
    private var last: (payer: Owner, atMs: UInt64)?
    private var contendedUntil: UInt64 = 0

    /// What a request counts while several payers are active. The table's shares are for a payer that is alone.
    static let contendedWeight = 8
    /// How long a payer counts as active after a request.
    static let contentionMs: UInt64 = 100
    static let restMs: UInt64 = 2

    mutating func note(_ payer: Owner, _ now: UInt64) {
        if let last, last.payer != payer { contendedUntil = max(contendedUntil, last.atMs + Self.contentionMs) }
        last = (payer, now)
    }

    func isContended(_ now: UInt64) -> Bool { now < contendedUntil }
}

// A payer with many requests at once waits, so that others get a turn.
extension HTTPServer {
    /// Whom a request is charged to. Behind a trusted proxy that is the network it comes from; the proxy's connection has no share.
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
        turn.note(owners.payer, loop.now)
        count()
        // Those that came before go first.
        if turn.waiting[owners.payer] != nil { return false }
        return charge(owners, cost)
    }

    /// Returns when a WebSocket's next message may be handled.
    func awaitTurn(_ owners: Owners) async {
        if takesTurn(owners) { return }
        await withCheckedContinuation { wait(.message(owners, $0), owners) }
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

    private func charge(_ owners: Owners, _ cost: Int = 1) -> Bool {
        // One at a time always fits.
        let amount = min(cost * weight, owners.connection == nil ? mostInTurn : mostOfConnectionInTurn)
        return (try? configuration.shares.charge(.requestsInTurn, amount, to: owners, now: turn.number)) != nil
    }

    private var weight: Int { turn.isContended(loop.now) ? Turn.contendedWeight : 1 }

    func wait(_ request: Turn.Waiting, _ owners: Owners) { turn.waiting[owners.payer, default: []].append(request) }

    /// Has the loop count this turn's requests.
    private func count() {
        guard !turn.isCounting else { return }
        turn.isCounting = true
        loop.atEndOfTurn { self.endTurn() }
    }

    private func endTurn() {
        turn.number += 1
        turn.isCounting = false
        let isContended = turn.isContended(loop.now)
        for payer in Array(turn.waiting.keys) where !turn.resting.contains(payer) {
            if isContended { rest(payer) } else { startWaiting(of: payer) }
        }
    }

    private func rest(_ payer: Owner) {
        turn.resting.insert(payer)
        loop.after(Turn.restMs) {
            self.turn.resting.remove(payer)
            self.startWaiting(of: payer)
        }
    }

    /// Starts requests of one payer until it has had its share of the next turn.
    private func startWaiting(of payer: Owner) {
        guard let requests = turn.waiting.removeValue(forKey: payer) else { return }
        count()
        var left: [Turn.Waiting] = []
        var isOver = false
        for request in requests where isOver || !start(request) {
            left.append(request)
            isOver = isOver || !configuration.shares.allows(.requestsInTurn, weight, to: Owners(payer), now: turn.number)
        }
        if !left.isEmpty { turn.waiting[payer] = left }
    }

    /// - Returns: false if the request still has to wait.
    private func start(_ waiting: Turn.Waiting) -> Bool {
        switch waiting {
        case .request(let id):
            guard let http1 = connection(id)?.http1, let request = http1.waiting else { return true }
            guard charge(request.owners) else { return false }
            http1.waiting = nil
            http1.start(request, on: self)
        case .stream(let stream, let id):
            guard let request = stream.waiting else { return true }
            guard charge(request.owners) else { return false }
            stream.waiting = nil
            guard let http2 = connection(id)?.http2 else {
                stream.refund(configuration.shares)
                break
            }
            http2.start(request, stream, on: self)
        case .message(let owners, let continuation):
            guard charge(owners) else { return false }
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

/// Finds out whether most requests come from one network, in constant memory: Boyer and Moore's majority vote over one window names a suspect,
/// and the next window counts it.
struct Dominance {
    private var candidate: Owner?
    private var votes = 0
    private var suspect: Owner?
    private var hits = 0
    private var total = 0
    /// Fewer requests in a window say nothing.
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
