public import EventLoop
public import Sealing
import Storage
public import Vocabulary

/// Devices that watch a printer. Its news goes to all devices that registered for it and asked for such news.
///
/// The audience is the printer's prefix, which all owners of a deployment share. Registrations, fan-out and throttle are those of `Audiences`.
public actor Monitor: LoopActor {
    public nonisolated let loop: EventLoop
    public nonisolated let audiences: Audiences

    public init(audiences: Audiences) {
        loop = audiences.loop
        self.audiences = audiences
    }

    /// A device as a back end sees it.
    public struct Device: Sendable, Equatable {
        public var id: RegistrationID
        public var preferences: DevicePreferences
    }

    /// Registers a device's token for the caller, or renews it. A device watches one printer: a new one replaces the previous one.
    ///
    /// - Parameters:
    ///   - printer: its prefix, 1 to 128 bytes. Nil for none yet.
    ///   - environment: nil for the configured one. The same goes for `topic`, the app's bundle id.
    /// - Throws: `.appNotServed`, `.tooManyRegistrations`, `.tooManyRequests`, and what the store throws.
    public func register(
        _ principal: Principal, token: Secret, printer: [UInt8]?, environment: PushEnvironment?, topic: String?
    ) async throws(BrokerError) -> Registered {
        try await audiences.register(
            Registration(
                audience: printer ?? [], owner: principal.user, token: token, kind: .alert, environment: environment, topic: topic
            ))
    }

    /// Changes which news a device gets. News in neither set stay as they are.
    ///
    /// - Returns: false if the device is unknown or another user's. The caller is not told which.
    /// - Throws: `.tooManyRequests`, and what the store throws.
    public func set(
        _ principal: Principal, device id: RegistrationID, adding: DevicePreferences, removing: DevicePreferences
    ) async throws(BrokerError) -> Bool {
        // A failed try means that the device was sealed again meanwhile.
        for _ in 0..<5 {
            guard let device = try await device(id, of: principal) else { return false }
            let preferences = DevicePreferences(rawValue: device.preferences)
            // Nothing would change, so nothing is written.
            if preferences.subtracting(removing).union(adding) == preferences { return true }
            let event = try await audiences.takeEvent(of: principal.user)
            let isSet = try await audiences.store.write {
                try $0.setPreferences(
                    device.row, removing: removing.rawValue, adding: adding.rawValue)
            }
            if isSet { return true }
            event.cancel()
        }
        throw .storageUnavailable
    }

    /// Destroys a device's token, if it is one of this user's.
    public func delete(_ principal: Principal, device id: RegistrationID) async throws(BrokerError) {
        guard let device = try await device(id, of: principal) else { return }
        _ = try await audiences.unregister([device])
    }

    /// The devices that watch a printer and get any news, for a back end.
    /// - Throws: `.backEndOnly`.
    public func devices(_ principal: Principal, watching printer: [UInt8]) async throws(BrokerError) -> [Device] {
        guard principal.isBackEnd else { throw .backEndOnly }
        return try await audiences.devices(of: printer).compactMap {
            let preferences = DevicePreferences(rawValue: $0.preferences)
            return preferences.contains(.enabled) ? Device(id: $0.id, preferences: preferences) : nil
        }
    }

    private func device(_ id: RegistrationID, of principal: Principal) async throws(BrokerError) -> RegistrationRecord? {
        try await audiences.registrations(of: principal.user).first { $0.id == id }
    }
}
