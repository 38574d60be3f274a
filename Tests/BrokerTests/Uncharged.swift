import Linux
import Sealing
import Storage
import Vocabulary

@testable import Broker

// Calls of the rules as tests make them, by a caller who is charged for nothing.

extension Rooms {
    func create(_ request: CreateRoom, from address: SocketAddress) async throws -> Membership {
        try await create(request, from: address, charging: nil)
    }

    func replaceToken(_ caller: Caller, with address: PushAddress) async throws -> (ref: Ref, expires: UInt64) {
        try await replaceToken(caller, with: address, charging: nil)
    }

    func withdrawToken(_ caller: Caller) async throws -> Int { try await withdrawToken(caller, charging: nil) }

    func report(_ caller: Caller, leaving: Bool) async throws -> Delivery {
        try await report(caller, leaving: leaving, charging: nil)
    }

    func test(_ caller: Caller) async throws -> Delivery { try await test(caller, charging: nil) }

    func join(
        _ caller: Caller, socket: UInt64, isOpen: @Sendable () -> Bool
    ) async throws -> (expires: UInt64, peerPresent: Bool, delivery: Delivery)? {
        try await join(caller, socket: socket, charging: nil, isOpen: isOpen)
    }
}

extension Audiences {
    func apply(_ fanout: Fanout) async throws -> ChangeOutcome { try await apply(fanout, charging: nil) }
}

extension Companion {
    func registerDevice(_ principal: Principal, address: PushAddress) async throws -> Registered {
        try await registerDevice(principal, address: address, charging: nil)
    }

    func registerActivity(
        _ principal: Principal, address: PushAddress, activity: [UInt8], session: [UInt8], previous: Secret?
    ) async throws -> Registered {
        try await registerActivity(
            principal, address: address, activity: activity, session: session, previous: previous.map { DeviceName(token: $0) },
            charging: nil)
    }

    func take(
        _ event: CompanionEvent, of user: [UInt8]?, session: [UInt8], eventID: [UInt8]?, ownID: [UInt8]? = nil,
        from principal: Principal
    ) async throws -> EventReceipt {
        try await take(event, of: user, session: session, eventID: eventID, ownID: ownID, from: principal, charging: nil)
    }

    func claim(
        _ principal: Principal, of user: [UInt8]?, session: [UInt8], device: [UInt8], type: ClientType, token: Secret?
    ) async throws -> Bool {
        try await claim(
            principal, of: user, session: session, device: device, type: type, token: token.map { DeviceName(token: $0) },
            charging: nil)
    }

    func clearApproval(_ principal: Principal, request: RequestName, excluding: Secret?) async throws -> Int? {
        try await clearApproval(principal, request: request, excluding: excluding.map { DeviceName(token: $0) }, charging: nil)
    }

    func respond(_ principal: Principal, request: RequestName, approved: Bool, excluding: Secret?) async throws -> Bool {
        try await respond(
            principal, request: request, approved: approved, excluding: excluding.map { DeviceName(token: $0) }, charging: nil)
    }

    func clearSession(_ principal: Principal, of user: [UInt8]? = nil, session: [UInt8]) async throws -> Int {
        try await clearSession(principal, of: user, session: session, charging: nil)
    }
}

extension Monitor {
    func register(_ principal: Principal, address: PushAddress, printer: [UInt8]?) async throws -> Registered {
        try await register(principal, address: address, printer: printer, charging: nil)
    }

    func take(
        _ event: PrinterEvent, of printer: [UInt8], eventID: [UInt8]?, from principal: Principal
    ) async throws -> (news: PrinterNews?, receipt: EventReceipt) {
        try await take(event, of: printer, eventID: eventID, from: principal, charging: nil)
    }
}

extension Calls {
    func register(
        _ principal: Principal, user: [UInt8], address: PushAddress, previous: Secret? = nil
    ) async throws -> Registered {
        try await register(
            principal, user: user, address: address, previous: previous.map { DeviceName(token: $0) }, charging: nil)
    }

    func ring(_ call: CallInvitation) async throws -> CallReceipt { try await ring(call, charging: nil) }
}
