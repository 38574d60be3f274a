public import EventLoop
import Policy
public import Sealing
import Storage
public import Vocabulary

/// Devices that watch a printer. The printer's news goes to all devices that registered for it and asked for such news.
///
/// The audience is the printer's prefix, which all owners of a deployment share.
public actor Monitor: LoopActor {
    public nonisolated let loop: EventLoop
    public nonisolated let audiences: Audiences

    public init(audiences: Audiences) {
        loop = audiences.loop
        self.audiences = audiences
    }

    /// A device in an answer to a back end.
    public struct Device: Sendable, Equatable {
        public var id: RegistrationID
        public var preferences: DevicePreferences
    }

    /// Registers a device's token for the caller, or renews it. A device watches one printer: a new one replaces the previous one.
    ///
    /// - Parameter printer: its prefix, 1 to 128 bytes. Nil for none yet.
    /// - Throws: `.tooManyRegistrations`, `.tooManyRequests`, and what the store throws.
    public func register(
        _ principal: Principal, address: PushAddress, printer: [UInt8]?, charging payer: RequestCharges?
    ) async throws -> Registered {
        try await audiences.register(
            Registration(audience: printer ?? [], owner: principal.user, address: address, kind: .alert), charging: payer)
    }

    /// Changes which news a device gets. News in neither set stay as they are.
    ///
    /// - Returns: false if the device is unknown or another user's. The caller can't distinguish these.
    /// - Throws: `.tooManyRequests`, and what the store throws.
    public func set(
        _ principal: Principal, device id: RegistrationID, adding: DevicePreferences, removing: DevicePreferences
    ) async throws -> Bool {
        // A failed try means that the device was sealed again meanwhile.
        return try await retrying { _ in
            guard let device = try await device(id, of: principal) else { return false }
            let preferences = DevicePreferences(rawValue: device.preferences)
            if preferences.subtracting(removing).union(adding) == preferences { return true }
            let admission = Admission(audiences.charges.shares)
            defer { admission.end() }
            admission.add(try await audiences.chargeEvent(of: principal.user))
            let isSet = try await audiences.store.write {
                try $0.setPreferences(device.row, removing: removing.rawValue, adding: adding.rawValue)
            }
            guard isSet else { return nil }
            admission.commit()
            return true
        }
    }

    /// Destroys a device's token, if it is one of this user's.
    public func delete(_ principal: Principal, device id: RegistrationID) async throws {
        guard let device = try await device(id, of: principal) else { return }
        _ = try await audiences.unregister([device])
    }

    /// Returns the devices that watch a printer and get any news, for a back end.
    /// - Throws: `.backEndOnly`.
    public func devices(_ principal: Principal, watching printer: [UInt8]) async throws -> [Device] {
        guard principal.isBackEnd else { throw BrokerError.backEndOnly }
        return try await audiences.devices(of: printer).compactMap {
            let preferences = DevicePreferences(rawValue: $0.preferences)
            return preferences.contains(.enabled) ? Device(id: $0.id, preferences: preferences) : nil
        }
    }

    /// Pushes to the caller's own devices that watch this printer and get any news.
    ///
    /// `print_complete` requires no action. Its collapse id is the test's, so it replaces no news of the printer.
    /// - Throws: what `Audiences.test` throws.
    public func test(
        _ principal: Principal, printer: [UInt8]?, charging payer: RequestCharges?
    ) async throws -> EventReceipt {
        let printer = printer ?? []
        return try await audiences.test(
            AudienceEvent(
                template: "print_complete", collapse: .handle(kind: "test", id: []),
                fields: ["printer": .handle(kind: "printer", id: printer)]), of: printer, for: principal, charging: payer)
    }

    private func device(_ id: RegistrationID, of principal: Principal) async throws -> RegistrationRecord? {
        try await audiences.registrations(of: principal.user).first { $0.id == id }
    }
}

extension Monitor {
    /// Handles a printer's event. When this returns, every push that it causes is durable, and so is the milestone.
    ///
    /// - Parameters:
    ///   - printer: its prefix, 1 to 128 bytes.
    ///   - eventID: the caller's name for the event, at most 128 bytes. A second event of this name does nothing.
    /// - Returns: the news, even if no device asked for it, and the result.
    /// - Throws: `.backEndOnly`, `.tooManyRequests` for one printer, `.tooManyPushes`. Then nothing of the event is kept.
    public func take(
        _ event: PrinterEvent, of printer: [UInt8], eventID: [UInt8]?, from principal: Principal, charging payer: RequestCharges?
    ) async throws -> (news: PrinterNews?, receipt: EventReceipt) {
        guard principal.isBackEnd else { throw BrokerError.backEndOnly }
        try await audiences.chargeEvent(of: Self.counted(printer))
        // A failed try means that something else happened to the printer or to one of the devices meanwhile.
        return try await retrying(8) { attempt in
            let (news, run) = try await outcome(of: event, printer)
            var fanout = if let news { try await pushes(news, printer) } else { audiences.newFanout() }
            fanout.change.session = run
            // The second try includes devices that were sealed again. From then on the pushes to devices that are gone are left out.
            fanout.change.leavesOutGone = attempt > 0
            if let eventID { fanout.change.seen = try await audiences.repeatMark(printer, eventID, principal.callerSpace) }
            let outcome = fanout.change.isEmpty ? .done : try await audiences.apply(fanout, charging: payer)
            switch outcome {
            case .done: return (news, EventReceipt(pushes: fanout.pushes, throttled: fanout.throttled, skipped: fanout.skipped))
            case .repeated: return (nil, EventReceipt(isRepeated: true))
            case .changed, .settled, .leftOut: return nil
            }
        }
    }

    /// The name for a printer's event budget. It is not UTF-8, so that it differs from every user's name.
    private static func counted(_ printer: [UInt8]) -> [UInt8] { [0xff] + printer }

    /// Returns the news of an event, and the change of the printer's run. The run's row has the highest milestone that was reported.
    private func outcome(
        of event: PrinterEvent, _ printer: [UInt8]
    ) async throws -> (news: PrinterNews?, run: SessionChange?) {
        switch event {
        case .status(let old, let new):
            let news = new.news(after: old)
            // A run that continues after a pause keeps its milestones.
            guard news == .started, !old.isPaused else { return (news, nil) }
            return (news, try await run(printer, reached: 0, after: try await audiences.session(printer)))
        case .progress(let percent):
            let current = try await audiences.session(printer)
            let reported = Int(current?.reached ?? 0)
            let crossed = PrinterNews.milestones.last { $0 <= percent } ?? 0
            if crossed > reported { return (.milestone(crossed), try await run(printer, reached: crossed, after: current)) }
            // Events renew the run's row.
            guard let current, await audiences.expirySlot(for: .session).expiryMs > current.expires else { return (nil, nil) }
            return (nil, try await run(printer, reached: reported, after: current))
        }
    }

    private func run(
        _ printer: [UInt8], reached: Int, after current: SessionRecord?
    ) async throws -> SessionChange {
        var next = try await audiences.newSession(printer)
        next.reached = UInt8(reached)
        if let current {
            next.version = current.version + 1
            if reached > 0 { next.started = current.started }
        }
        return .set(next, after: current?.version, replacing: current?.session)
    }

    private func pushes(_ news: PrinterNews, _ printer: [UInt8]) async throws -> Fanout {
        let named = AudienceEvent.Value.handle(kind: "printer", id: printer)
        // Milestones replace each other on a phone. The end of a print stays.
        var event = AudienceEvent(template: news.template, collapse: named, fields: ["printer": named])
        if case .milestone(let percent) = news {
            event.collapse = .handle(kind: "progress", id: printer)
            event.fields["progress"] = .plain(.number(percent))
        }
        let devices = try await audiences.devices(of: printer).filter {
            DevicePreferences(rawValue: $0.preferences).isSuperset(of: news.preferences)
        }
        return try await audiences.pushes(event, to: devices, of: printer)
    }
}

/// A printer's state in the words of its server. Servers use different words. Case matters.
public enum PrinterStatus: String, Sendable, CaseIterable {
    case running, complete, failed, paused
    case finish, pause
    case idle, `init`, prepare, slicing, offline, unknown, unavailable, cancelled, error

    /// The common word for a state with two words.
    private var plain: PrinterStatus {
        switch self {
        case .finish: .complete
        case .pause: .paused
        default: self
        }
    }

    var isPaused: Bool { plain == .paused }

    /// Returns the news of a change, or nil if the change is no news.
    func news(after old: PrinterStatus) -> PrinterNews? {
        switch (old.plain == .running, plain) {
        case (false, .running): .started
        case (true, .complete): .complete
        case (true, .failed): .failed
        case (true, .paused): .paused
        default: nil
        }
    }
}

/// An event that a printer's server reports. File names and other details are dropped before.
public enum PrinterEvent: Sendable, Equatable {
    case status(from: PrinterStatus, to: PrinterStatus)
    /// Whole percent, 0 to 100.
    case progress(Int)
}

/// A printer's news for devices.
public enum PrinterNews: Sendable, Equatable {
    case started, complete, failed, paused
    /// The percentage that was reached.
    case milestone(Int)

    static let milestones = [25, 50, 75]

    /// The name of the policy's template. Answers to callers use the same name.
    public var template: String {
        switch self {
        case .started: "print_started"
        case .complete: "print_complete"
        case .failed: "print_failed"
        case .paused: "print_paused"
        case .milestone: "progress_milestone"
        }
    }

    /// The preferences that a device needs to get this news.
    var preferences: DevicePreferences {
        switch self {
        case .started: [.enabled, .start]
        case .complete: [.enabled, .complete]
        case .failed: [.enabled, .failed]
        case .paused: [.enabled, .paused]
        case .milestone: [.enabled, .milestone]
        }
    }
}

/// The news that a device gets about its printer, stored as a mask in the registration's row. A new device gets all news.
public struct DevicePreferences: OptionSet, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Without this a device gets no news at all.
    public static let enabled = DevicePreferences(rawValue: 1 << 0)
    public static let start = DevicePreferences(rawValue: 1 << 1)
    public static let complete = DevicePreferences(rawValue: 1 << 2)
    public static let failed = DevicePreferences(rawValue: 1 << 3)
    public static let paused = DevicePreferences(rawValue: 1 << 4)
    public static let milestone = DevicePreferences(rawValue: 1 << 5)
}
