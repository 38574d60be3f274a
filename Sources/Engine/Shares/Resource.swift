/// A finite resource that callers use. `ShareTable` has the limits.
public enum Resource: Int, Sendable, CaseIterable {
    case connections
    /// WebSockets whose handler has not called `markJoined` yet.
    case unjoinedSockets
    /// HTTP/2 requests from their head to the last byte of their response, and their memory. The latter also counts long bodies of HTTP/1.1 and long
    /// messages of WebSockets.
    case streams, streamBytes
    /// Its clock counts turns of the event loop instead of ms.
    case requestsInTurn
    /// TLS handshakes under way, and connections whose handshake has failed, until they are closed.
    case handshakes
    /// Joined WebSockets of one room side. `Presence` counts them and closes the one that has been silent longest if there is one too many.
    case roomSockets
    case storeOperations
    case arenaSlots
    /// A room side's presence reports and joins.
    case presenceChanges
    case tokenReplacements
    case creations
    /// Creations with a short join code. Each reveals whether its code was free.
    case shortCreations
    /// Pending rooms with a short join code.
    case shortCodes
    /// Entries that callers added since the log was last published completely.
    case ledgerBacklog
    case queuedPushes
    /// Requests for files of the log, from their start to their response.
    case logRequests
    /// Reads of these files under way, on threads of their own.
    case logReads

    /// The label in metrics.
    public var name: String {
        switch self {
        case .connections: "connections"
        case .unjoinedSockets: "unjoined_sockets"
        case .streams: "streams"
        case .streamBytes: "stream_bytes"
        case .requestsInTurn: "requests_in_turn"
        case .handshakes: "handshakes"
        case .roomSockets: "room_sockets"
        case .storeOperations: "store_operations"
        case .arenaSlots: "arena_slots"
        case .presenceChanges: "presence_changes"
        case .tokenReplacements: "token_replacements"
        case .creations: "creations"
        case .shortCreations: "short_creations"
        case .shortCodes: "short_codes"
        case .ledgerBacklog: "ledger_backlog"
        case .queuedPushes: "queued_pushes"
        case .logRequests: "log_requests"
        case .logReads: "log_reads"
        }
    }
}

/// One owner's limit: at most `cap`, and at most the `part`th part of what is free at that moment.
public struct Share: Sendable, Equatable {
    public var cap: Int
    /// 0 for no fraction.
    public var part: Int

    public init(_ cap: Int = .max, freeDividedBy part: Int = 0) { (self.cap, self.part) = (cap, part) }
}

/// The urgency of a charge. A resource may reserve a part for more urgent charges.
public enum Urgency: Int, Sendable, CaseIterable {
    case creation, knock, acknowledged

    /// Thousandths of the backlog limit up to which this urgency is admitted. New tokens are refused first, since each causes more entries later.
    public var backlogThousandths: Int {
        switch self {
        case .creation: 700
        case .knock: 850
        case .acknowledged: 1_000
        }
    }
}

/// A resource's total and the share of each kind of owner. An owner without a share is not charged.
public struct Quota: Sendable, Equatable {
    public var total: Int
    public var side: Share?
    public var connection: Share?
    /// The share of a network, and of a user with a JWT.
    public var network: Share?
    public var backEnd: Share?
    /// Ms after which a charge expires. Nil if it lasts until its refund.
    public var windowMs: UInt64?
    /// Thousandths of `total` available to charges of each urgency.
    public var ceilings: [Urgency: Int] = [:]

    public init(
        _ total: Int = .max, side: Share? = nil, connection: Share? = nil, network: Share? = nil, backEnd: Share? = nil,
        windowMs: UInt64? = nil, ceilings: [Urgency: Int] = [:]
    ) {
        self.total = total
        self.side = side
        self.connection = connection
        self.network = network
        self.backEnd = backEnd
        self.windowMs = windowMs
        self.ceilings = ceilings
    }

    /// The share of a trusted proxy, and of all owners without a row in a full table. It leaves room for others.
    var exempt: Share { Share(total - total / 16) }

    func ceiling(_ urgency: Urgency) -> Int { ceilings[urgency].map { total * $0 / 1_000 } ?? total }
}

/// Every finite resource with its total and its shares.
public struct ShareTable: Sendable, Equatable {
    private var quotas: [Quota]

    public subscript(_ resource: Resource) -> Quota {
        get { quotas[resource.rawValue] }
        set { quotas[resource.rawValue] = newValue }
    }

    public static let standard = ShareTable(quotas: Resource.allCases.map(quota))

    private static func quota(_ resource: Resource) -> Quota {
        let half = Share(freeDividedBy: 2)
        return switch resource {
        case .connections: Quota(30_000, network: Share(4_000, freeDividedBy: 4), backEnd: half)
        case .unjoinedSockets: Quota(2_048, network: Share(256), backEnd: half)
        // As many as `streamBytes` allows.
        case .streams: Quota(32_768, connection: Share(64), network: Share(1_024), backEnd: half)
        case .streamBytes:
            Quota(128 << 20, connection: Share(1 << 20), network: Share(freeDividedBy: 4), backEnd: half)
        case .requestsInTurn: Quota(connection: Share(16), network: Share(64), backEnd: Share(256), windowMs: 1)
        // Connections have shares. A listener for few peers limits handshakes as well.
        case .handshakes: Quota()
        case .roomSockets: Quota(side: Share(8))
        case .storeOperations:
            // An app in the foreground sends several requests of a side at once.
            Quota(4_096, side: Share(8), connection: Share(64), network: Share(freeDividedBy: 4), backEnd: half)
        case .arenaSlots:
            // Two for each of a connection's 64 requests. A sixteenth is reserved for acknowledged pushes.
            Quota(
                40_960, connection: Share(128), network: Share(freeDividedBy: 4), backEnd: half,
                ceilings: [.creation: 937, .knock: 937])
        case .presenceChanges: Quota(side: Share(5), windowMs: 5_000)
        case .tokenReplacements: Quota(side: Share(6), windowMs: 600_000)
        case .creations: Quota(1_000_000, network: Share(10_000), backEnd: Share(200_000), windowMs: 600_000)
        case .shortCreations: Quota(1_000, network: Share(freeDividedBy: 4), backEnd: half, windowMs: 600_000)
        case .shortCodes: Quota(1_000, network: Share(freeDividedBy: 4), backEnd: half)
        case .ledgerBacklog:
            Quota(
                1_000_000, network: Share(freeDividedBy: 8), backEnd: half,
                ceilings: Dictionary(uniqueKeysWithValues: Urgency.allCases.map { ($0, $0.backlogThousandths) }))
        case .queuedPushes: Quota(200_000, side: Share(1), network: Share(freeDividedBy: 8), backEnd: half)
        case .logRequests: Quota(4_096, connection: Share(64), network: Share(256, freeDividedBy: 4), backEnd: half)
        case .logReads: Quota(64, connection: Share(4), network: Share(freeDividedBy: 4), backEnd: half)
        }
    }
}
