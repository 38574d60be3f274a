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
        /// The token that the broker has of this side. Nil if it has none, or if that is not known.
        var sent: PushToken?
    }

    private let client: Client
    private var entries: [Secret: Entry] = [:]
    private var isUpdating = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// The token that Apple gave last. Nil before ``register(_:)``, and after ``withdraw()`` and ``forget()``.
    public private(set) var token: PushToken?

    public init(client: Client) { self.client = client }

    /// The rooms that get each new token.
    public var rooms: [Room] { entries.values.map(\.room) }

    /// Adds a room, and gives it the current token if the broker has another one.
    ///
    /// - Parameters:
    ///   - room: a room that has not ended.
    ///   - sent: the token with which it was created or accepted.
    @discardableResult
    public func add(_ room: Room, sent: PushToken? = nil) async -> Report {
        entries[room.roomID] = Entry(room: room, sent: sent)
        return await retry()
    }

    /// Forgets a room, for instance after it was closed. Sends nothing.
    public func remove(_ room: Room) { entries[room.roomID] = nil }

    /// Takes the token of `didRegisterForRemoteNotificationsWithDeviceToken` and sends it to each room that has another one.
    ///
    /// Call this at each launch: Apple may have changed the token. A room takes six replacements in ten minutes.
    @discardableResult
    public func register(_ deviceToken: Data) async -> Report {
        token = PushToken(deviceToken)
        return await retry()
    }

    /// Destroys this phone's token at the broker in every room, and forgets the token. The rooms stay live, without pushes.
    @discardableResult
    public func withdraw() async -> Report {
        token = nil
        return await update { entry in
            _ = try await self.client.withdrawToken(in: entry.room)
            entry.sent = nil
            entry.room.ref = nil
        }
    }

    /// Sends the current token to each room that has another one.
    @discardableResult
    public func retry() async -> Report {
        await update { entry in
            // Read here, after the calls before this one: a token that came meanwhile wins.
            guard let token = await self.token, token != entry.sent else { return }
            entry.room = try await self.client.replaceToken(token, in: entry.room)
            entry.sent = token
        }
    }

    /// Forgets token and rooms in memory. Sends nothing: to destroy tokens at the broker, call ``withdraw()`` first.
    public func forget() {
        token = nil
        entries = [:]
    }

    /// Changes the rooms one after the other. Calls wait for each other, so that no older token overwrites a newer one.
    private func update(_ change: @Sendable (inout Entry) async throws -> Void) async -> Report {
        await lock()
        defer { unlock() }
        var report = Report()
        for (id, before) in entries {
            var entry = before
            do {
                try await change(&entry)
                // It may have been removed meanwhile.
                if entries[id] != nil { entries[id] = entry }
                if entry.room != before.room { report.updated.append(entry.room) }
            } catch let error as MayflyError where error.refusal?.kind == .gone {
                entries[id] = nil
                report.ended.append(entry.room)
            } catch {
                // An answer may be lost, so it isn't known which token the broker has.
                entries[id]?.sent = nil
                report.failed.append((entry.room, error))
            }
        }
        return report
    }

    private func lock() async {
        if isUpdating { await withCheckedContinuation { waiting.append($0) } } else { isUpdating = true }
    }

    private func unlock() {
        if waiting.isEmpty { isUpdating = false } else { waiting.removeFirst().resume() }
    }
}
