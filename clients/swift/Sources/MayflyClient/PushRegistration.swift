import Foundation

/// Keeps the phone's token current in every live room. It holds token and rooms in memory only.
public actor PushRegistration {
    /// What became of each room in one call.
    public struct Report: Sendable {
        /// Rooms whose token was replaced or withdrawn, with their new ``Room/ref``. Keep these instead of the old values.
        public var updated: [Room] = []
        /// Rooms that have ended. They are live no more.
        public var ended: [Room] = []
        /// Rooms that could not be reached. Call ``retry()`` later.
        public var failed: [(room: Room, error: any Error)] = []
    }

    private struct Entry {
        var room: Room
        var held: Held
    }

    /// What the broker has of this side.
    private enum Held: Equatable {
        case nothing
        case token(PushToken)
        case unknown
    }

    /// What it is to have.
    private enum Wish {
        case anything
        case token(PushToken)
        case nothing
    }

    private let client: Client
    private var entries: [Secret: Entry] = [:]
    private var wish = Wish.anything
    private var isUpdating = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    public init(client: Client) { self.client = client }

    /// The token that Apple gave last. Nil before ``register(_:)``, and after ``withdraw()`` and ``forget()``.
    public var token: PushToken? { if case .token(let token) = wish { token } else { nil } }

    /// The rooms that get each new token.
    public var rooms: [Room] { entries.values.map(\.room) }

    /// Adds a room, and gives it the current token if the broker has another one.
    ///
    /// - Parameters:
    ///   - room: a room that has not ended.
    ///   - sent: the token with which it was created or accepted.
    @discardableResult
    public func add(_ room: Room, sent: PushToken? = nil) async -> Report {
        entries[room.roomID] = Entry(room: room, held: sent.map { .token($0) } ?? .unknown)
        return await update([room.roomID])
    }

    /// Forgets a room, for instance after it was closed. Sends nothing.
    public func remove(_ room: Room) { entries[room.roomID] = nil }

    /// Takes the token of `didRegisterForRemoteNotificationsWithDeviceToken` and sends it to each room that has another one.
    ///
    /// Call this at each launch: Apple may have changed the token. A room takes six replacements in ten minutes.
    @discardableResult
    public func register(_ deviceToken: Data) async -> Report {
        wish = .token(PushToken(deviceToken))
        return await retry()
    }

    /// Destroys this phone's token at the broker in every room, and forgets the token. The rooms stay live, without pushes.
    @discardableResult
    public func withdraw() async -> Report {
        wish = .nothing
        return await retry()
    }

    /// Forgets token and rooms in memory. Sends nothing: to destroy tokens at the broker, call ``withdraw()`` first.
    public func forget() {
        wish = .anything
        entries = [:]
    }

    /// Repeats what failed in ``register(_:)``, ``withdraw()`` or ``add(_:sent:)``, room by room.
    @discardableResult
    public func retry() async -> Report { await update(Array(entries.keys)) }

    private func update(_ rooms: [Secret]) async -> Report {
        // Calls wait for each other, so that no older token overwrites a newer one.
        await lock()
        defer { unlock() }
        var report = Report()
        var shortage: (any Error)?
        for id in rooms {
            guard let before = entries[id] else { continue }
            if let shortage {
                report.failed.append((before.room, shortage))
                continue
            }
            var entry = before
            do {
                try await fulfil(&entry)
                // It may have been removed meanwhile.
                if entries[id] != nil { entries[id] = entry }
                if entry.room != before.room { report.updated.append(entry.room) }
            } catch let error as MayflyError where error.refusal?.kind == .gone {
                entries[id] = nil
                report.ended.append(entry.room)
            } catch {
                // The answer may be lost, with the call carried out.
                entries[id]?.held = .unknown
                report.failed.append((entry.room, error))
                if Self.concernsAllRooms(error) { shortage = error }
            }
        }
        return report
    }

    /// Whether the next room would wait for the same reason.
    private static func concernsAllRooms(_ error: any Error) -> Bool {
        switch error as? MayflyError {
        case .unreachable: true
        case .refused(let refusal): refusal.kind == .exhausted && refusal.code != .tooManyRequests
        default: false
        }
    }

    private func fulfil(_ entry: inout Entry) async throws {
        switch wish {
        case .token(let token) where entry.held != .token(token):
            entry.room = try await client.replaceToken(token, in: entry.room)
            entry.held = .token(token)
        case .nothing where entry.held != .nothing:
            try await client.withdrawToken(in: entry.room)
            entry.room.ref = nil
            entry.held = .nothing
        default: break
        }
    }

    private func lock() async {
        if isUpdating { await withCheckedContinuation { waiting.append($0) } } else { isUpdating = true }
    }

    private func unlock() {
        if waiting.isEmpty { isUpdating = false } else { waiting.removeFirst().resume() }
    }
}
