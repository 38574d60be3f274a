import Foundation
import MayflyClient

#if MAYFLY_APPLE_STUBS
    import MayflyApple
#endif

/// Keeps values beyond the app's end, each in an item of its own. On a phone it is `SharedKeychain`.
nonisolated public protocol Storage: Sendable {
    /// Adds the value, or replaces it.
    func save(_ value: some Encodable, as id: String) throws
    func delete(_ id: String) throws
    /// Returns the value under `id`. Returns nil if there is none, and throws if it can't be read.
    func load<Value: Decodable>(_ type: Value.Type, as id: String) throws -> Value?
    /// Returns the values that can be read. Throws if the storage as a whole can't be read.
    func load<Value: Decodable>(_ type: Value.Type) throws -> [Value]
}

nonisolated extension SharedKeychain: Storage {}

/// One value that an app keeps, such as its registrations.
nonisolated public struct Kept<Value: Codable & Sendable>: Sendable {
    private let storage: any Storage
    private var value: Value?
    private let empty: Value

    /// - Parameter empty: the value of a new phone.
    public init(in storage: any Storage, empty: Value) { (self.storage, self.empty) = (storage, empty) }

    /// Returns what `storage` keeps, such as for an extension. Returns nil on a new phone.
    public static func load(from storage: any Storage) throws -> Value? { try storage.load(Value.self, as: "kept") }

    /// Throws before the phone's first unlock after a start, and for a value of another version of the app. A later call tries again.
    public mutating func read() throws -> Value {
        if let value { return value }
        // A failure is no new phone: the next change would replace its registrations.
        let loaded = try Self.load(from: storage) ?? empty
        value = loaded
        return loaded
    }

    public mutating func change(_ change: (inout Value) -> Void) throws {
        var new = try read()
        change(&new)
        try storage.save(new, as: "kept")
        value = new
    }
}

/// A phone's registration, and those before it that are to be deleted.
nonisolated public struct Registered: Codable, Sendable {
    public private(set) var current: Registration?
    /// A logout needs them until the broker has deleted them.
    public private(set) var old: [Registration] = []
    /// The token of a registration whose answer never came. Registering the token again returns that registration.
    public var unanswered: PushToken?

    public init() {}

    public var all: [Registration] { [current].compactMap { $0 } + old }

    /// A new token may be a new registration.
    public mutating func set(_ new: Registration) {
        old.removeAll { $0.id == new.id }
        if let current, current.id != new.id { old.append(current) }
        (current, unanswered) = (new, nil)
    }

    /// Drops a token that the broker refuses for good. Otherwise the user could never log out.
    public mutating func recordFailure(_ error: any Error) {
        guard let refusal = (error as? MayflyError)?.refusal else { return }
        if refusal.kind != .unauthorized, refusal.retryAfter == nil { unanswered = nil }
    }

    public mutating func remove(_ registration: Registration) { old.removeAll { $0.id == registration.id } }
}

/// Runs registrations and the logout one after the other: no older token overwrites a newer one, and no user who has left is registered.
nonisolated public struct Turns: Sendable {
    private var last: Task<Void, any Error>?

    public init() {}

    /// Starts `work` when the work before has ended, also if it failed.
    public mutating func add(_ work: @escaping @Sendable () async throws -> Void) -> Task<Void, any Error> {
        let task = Task { [last] in
            _ = await last?.result
            try await work()
        }
        last = task
        return task
    }
}
