import CallKit
import Foundation
import MayflyClient

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// What an app for calls has between its screens, its calling service and Mayfly.
@MainActor
final class Calls {
    /// What stays when iOS ends the app.
    nonisolated struct Memory: Codable, Sendable {
        var uid: String?
        /// A real app keeps what its login needs to get a new one.
        var jwt: Secret?
        /// PushKit's token of now.
        var token: PushToken?
        /// The tokens that the broker may have, the newest last. An answer may be lost, or the app end before it.
        var sent: [PushToken] = []
        var phone: Registration? { didSet { setCallers() } }
        /// The phone's own names, by `uid`.
        var names: [String: String] = [:] { didSet { setCallers() } }
        /// Who may call. It is kept, since a push must be reported at once.
        private(set) var callers = HandleTable()

        private mutating func setCallers() { callers = phone?.table(.uid, names.keys) ?? HandleTable() }
    }

    /// A locked phone can read it: that is how most phones ring.
    nonisolated static let keychain = SharedKeychain(service: "calls", accessGroup: "TEAM.org.example.calls")

    private let client: Client
    private var kept: Kept<Memory>
    private let phone: PhoneCalls
    private let waiting: @Sendable () async -> [String]
    private let show: @Sendable (String) -> Void
    private var turns = Turns()
    private var isRegistered = false
    private var ringing: [UUID: String] = [:]

    /// Make it before the launch ends: iOS starts the app for a call.
    ///
    /// - Parameter waiting: asks the calling service which calls wait for this user.
    init(
        client: Client, storage: any Storage, waiting: @escaping @Sendable () async -> [String],
        show: @escaping @Sendable (String) -> Void
    ) {
        (self.client, self.waiting, self.show) = (client, waiting, show)
        kept = Kept(in: storage, empty: Memory())
        let configuration = CXProviderConfiguration()
        configuration.supportsVideo = true
        configuration.supportedHandleTypes = [.generic]
        // Nobody can be called back from there: iOS knows the push's handle, and no user.
        configuration.includesCallsInRecents = false
        let memory: @Sendable () -> Memory? = { try? Kept<Memory>.load(from: storage) }
        phone = PhoneCalls(
            configuration: configuration, callers: { memory()?.callers ?? HandleTable() }, unknownCaller: "Unknown caller",
            name: { memory()?.names[$0] })
        Task {
            for await event in phone.events {
                do { try await heard(event) } catch { show("failed: \(error)") }
            }
        }
    }

    private func heard(_ event: PhoneEvent) async throws {
        switch event {
        case .token(let token):
            try kept.change { $0.token = token }
            startTurn { try await self.registerNow() }
        case .tokenInvalid:
            try kept.change { $0.token = nil }
            startTurn {
                try await self.deletePhone()
                self.show("this phone doesn't ring")
            }
        case .ringing(let id, let call): await rings(id, call)
        case .notShown(let call, _): show("missed \(call.caller ?? "a call")")
        case .answered(let id): show("talking in \(ringing[id] ?? "a call that nobody knows yet")")
        case .muted(let id, let isMuted): show("\(ringing[id] ?? "a call") is \(isMuted ? "muted" : "heard")")
        case .hungUp(let id): show("hung up \(ringing.removeValue(forKey: id) ?? "a call")")
        case .audioStarted, .audioStopped: break
        case .reset: ringing = [:]
        }
    }

    /// The phone rings already. The calling service knows whether somebody waits.
    private func rings(_ id: UUID, _ call: CallNotification) async {
        // A failed read doesn't prove that nobody waits.
        guard let memory = try? kept.read() else { return show("ringing for a call that can't be looked up") }
        let session = await waiting().first { session in memory.phone.map { call.isAbout(session, $0) } ?? false }
        guard let session else {
            phone.end(id, .remoteEnded)
            return show("nobody waits")
        }
        ringing[id] = session
        show("ringing for \(session)")
    }

    /// Returns nil if nobody is logged in.
    private func accounts() throws -> Accounts? {
        try kept.read().jwt.map { jwt in Accounts(client: client) { jwt.value } }
    }

    func logIn(_ uid: String, _ jwt: Secret) async throws {
        try await inTurn {
            if try self.kept.read().uid.map({ $0 != uid }) ?? false { try await self.leaveLastUser() }
            try self.kept.change { ($0.uid, $0.jwt) = (uid, jwt) }
            try await self.registerNow()
        }
    }

    /// The next user's JWT can't delete the last user's phone.
    private func leaveLastUser() async throws {
        do { try await logOutNow() } catch let error as MayflyError where error.refusal?.kind == .unauthorized {
            // The last user's login has ended, so only the broker can end the registration: when it expires.
            show("the last user's calls go on")
            try forgetUser()
        }
    }

    func name(_ uid: String, _ name: String) throws { try kept.change { $0.names[uid] = name } }

    /// Returns at once, so that an incoming call doesn't wait for the broker.
    private func startTurn(_ work: @escaping @Sendable @MainActor () async throws -> Void) {
        let task = turns.add(work)
        Task {
            do { try await task.value } catch { show("failed: \(error)") }
        }
    }

    /// The app returns to the foreground, perhaps with a network again.
    func returned() { if !isRegistered { startTurn { try await self.registerNow() } } }

    private func inTurn(_ work: @escaping @Sendable @MainActor () async throws -> Void) async throws {
        let task = turns.add(work)
        try await task.value
    }

    private func registerNow() async throws {
        isRegistered = false
        let memory = try kept.read()
        guard let uid = memory.uid, let token = memory.token, let accounts = try accounts() else { return }
        let others = memory.sent.filter { $0 != token }
        try kept.change { $0.sent = others + [token] }
        let phone = try await accounts.registerPhone(token, uid: uid, previous: others.last)
        try kept.change { ($0.phone, $0.sent) = (phone, others.dropLast() + [token]) }
        isRegistered = true
        show("registered")
    }

    /// Otherwise the phone rings for a user who has left.
    func logOut() async throws {
        try await inTurn { try await self.logOutNow() }
        show("logged out")
    }

    private func logOutNow() async throws {
        try await deletePhone()
        try forgetUser()
    }

    /// PushKit's token is the phone's, and serves the next user.
    private func forgetUser() throws { try kept.change { $0 = Memory(token: $0.token) } }

    private func deletePhone() async throws {
        let memory = try kept.read()
        if let uid = memory.uid {
            for token in memory.sent { try await accounts()?.deletePhones(uid: uid, token: token) }
        }
        try kept.change { ($0.sent, $0.phone) = ([], nil) }
    }
}
