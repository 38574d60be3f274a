import Foundation
import MayflyClient

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// All chats of one phone: what an app for anonymous chats has between its screens and Mayfly.
actor Chats {
    private let client: Client
    private let storage: any Storage
    private let push: PushRegistration
    private let show: @Sendable (String) -> Void
    private var chats: [Chat] = []
    /// Apple's, for the day when the user turns pushes on again.
    private var deviceToken: Data?
    private var isOff = false
    private var loading: Task<Void, Never>?
    private var turns = Turns()
    private var session: RoomSession?
    private var lifecycle: AppLifecycle?
    let presence = Presence()

    /// - Parameters:
    ///   - storage: keeps the chats when iOS ends the app, which it does to most apps in the background.
    ///   - show: prints one line for the user.
    init(client: Client, storage: any Storage, show: @escaping @Sendable (String) -> Void) {
        self.client = client
        self.storage = storage
        self.show = show
        push = PushRegistration(client: client)
    }

    /// Loads the chats of earlier launches, once. Every method that uses chats calls it first, since a tap may come before anything else.
    func load() async {
        // Calls that come meanwhile wait for the same load, so that none of them misses a chat.
        if loading == nil { loading = Task { await loadKept() } }
        await loading?.value
    }

    private func loadKept() async {
        let kept: [Chat]
        do {
            kept = try storage.load(Chat.self).filter { chat in !chats.contains { $0.id == chat.id } }
            isOff = try storage.load(Bool.self, as: "off") ?? false
        } catch {
            // Before the first unlock nothing can be read. The next call tries again.
            loading = nil
            return show("the chats can't be read now")
        }
        // Before the rooms, which would get a token otherwise.
        if isOff { keep(await push.withdraw()) }
        chats += kept
        for chat in kept {
            // A room may end while no app runs. The phone's clock may be wrong, so within a day the broker decides.
            if chat.room.expiresAt + 86_400 < .now { await forget(chat) } else { keep(await push.add(chat.room)) }
        }
    }

    /// For the list on the screen.
    var all: [Chat] {
        get async {
            await load()
            return chats
        }
    }

    func create(nickname: String) async throws -> JoinCode {
        await load()
        let code = JoinCode.random()
        let token = await push.token
        let room = try await client.createRoom(code: code, token: token, lifetime: .seconds(3600))
        await add(Chat(id: UUID(), nickname: nickname, room: room), sent: token)
        return code
    }

    /// Returns false if what was typed is no code.
    func accept(typed: String, nickname: String) async throws -> Bool {
        await load()
        guard let code = JoinCode(typed: typed) else { return false }
        let token = await push.token
        let room = try await client.acceptRoom(code: code, token: token)
        await add(Chat(id: UUID(), nickname: nickname, room: room), sent: token)
        return true
    }

    private func add(_ chat: Chat, sent: PushToken?) async {
        chats.append(chat)
        save(chat)
        keep(await push.add(chat.room, sent: sent))
    }

    /// A failed save doesn't end the chat.
    private func save(_ chat: Chat) {
        do { try storage.save(chat, as: chat.id.uuidString) } catch { show("the chat can't be kept") }
    }

    /// Apple gave the phone a token: at each launch, and when the token changes.
    func register(_ deviceToken: Data) async {
        await load()
        self.deviceToken = deviceToken
        guard !isOff else { return }
        let report = await push.register(deviceToken)
        keep(report)
        if report.failed.isEmpty { show("registered") }
    }

    /// The app returns to the foreground, perhaps with a network again.
    func returned() async {
        await load()
        keep(await push.retry())
    }

    /// Takes over rooms with a new `ref`, and forgets those that ended.
    private func keep(_ report: PushRegistration.Report) {
        for room in report.updated {
            guard let index = chats.firstIndex(where: { $0.room.roomID == room.roomID }) else { continue }
            chats[index].room = room
            save(chats[index])
        }
        for chat in chats where report.ended.contains(where: { $0.roomID == chat.room.roomID }) { remove(chat) }
        if !report.failed.isEmpty { show("not done in \(report.failed.count) chats, the app's return tries again") }
    }

    /// The user opens a chat: this side is present until the chat closes.
    func open(_ id: Chat.ID) async {
        // Otherwise the second of two quick taps would leave this side present in both chats, without pushes.
        let task = turns.add { await self.openNow(id) }
        _ = await task.result
    }

    private func openNow(_ id: Chat.ID) async {
        await load()
        guard let chat = chats.first(where: { $0.id == id }) else { return show("unknown chat") }
        await RoomNotification.clear(chat.room)
        // The other side would see this one leave and come again.
        guard session?.room.roomID != chat.room.roomID else { return }
        await session?.leave()
        let session = await client.join(chat.room)
        self.session = session
        lifecycle = await AppLifecycle(session)
        Task {
            for await event in session { await heard(event, in: chat) }
        }
    }

    /// The chat is no longer on the screen.
    func close(_ id: Chat.ID) async {
        let task = turns.add { await self.closeNow(id) }
        _ = await task.result
    }

    private func closeNow(_ id: Chat.ID) async {
        guard let chat = chats.first(where: { $0.id == id }), let session, session.room.roomID == chat.room.roomID else { return }
        forgetSession(of: chat)
        await session.leave()
    }

    private func forgetSession(of chat: Chat) {
        if session?.room.roomID == chat.room.roomID { (session, lifecycle) = (nil, nil) }
    }

    private func heard(_ event: RoomEvent, in chat: Chat) async {
        await presence.heard(event, in: chat.id)
        switch event {
        case .joined(let peerPresent, _): show(peerPresent ? "\(chat.nickname) is here" : "waiting for \(chat.nickname)")
        case .peerAccepted: show("\(chat.nickname) used the code")
        case .peerJoined: show("\(chat.nickname) came")
        case .peerLeft(nil): show("\(chat.nickname) left")
        case .peerLeft(.queued): show("\(chat.nickname) is away, and gets a push")
        case .peerLeft: show("\(chat.nickname) is away")
        case .disconnected: show("connecting")
        case .ended(.left): show("closed the chat")
        case .ended(.closed), .ended(.gone):
            await forget(chat)
            show("the chat is over")
        case .ended(.failed(let error)):
            forgetSession(of: chat)
            show("failed: \(error)")
        }
    }

    /// The user tapped a notification.
    func tapped(_ push: ReceivedPush) async {
        guard let chat = await chat(of: push) else { return show("unknown push") }
        show("push about \(chat.nickname)")
        await open(chat.id)
    }

    /// Whether a push is about the chat on the screen.
    func isOpen(_ push: ReceivedPush) async -> Bool {
        await chat(of: push).map { $0.room.roomID == session?.room.roomID } ?? false
    }

    private func chat(of push: ReceivedPush) async -> Chat? {
        await load()
        let notification = RoomNotification(payload: push.payload, rooms: chats.map { ($0.room, $0.nickname) })
        return chats.first { $0.room.roomID == notification?.room.roomID }
    }

    /// The user deletes a chat: the room ends for both, and the broker destroys its tokens.
    func delete(_ id: Chat.ID) async throws {
        await load()
        guard let chat = chats.first(where: { $0.id == id }) else { return show("unknown chat") }
        do {
            let purged = try await client.close(chat.room)
            show("deleted, \(purged) tokens destroyed")
        } catch let error as MayflyError where error.refusal?.kind == .gone {
            show("deleted, it was over already")
        }
        await forget(chat)
    }

    private func forget(_ chat: Chat) async {
        await push.remove(chat.room)
        remove(chat)
        forgetSession(of: chat)
    }

    private func remove(_ chat: Chat) {
        chats.removeAll { $0.id == chat.id }
        do { try storage.delete(chat.id.uuidString) } catch { show("the chat can't be deleted from the storage") }
    }

    /// The user turns notifications off: no room has this phone's token any more, also after the next launch.
    func turnPushesOff() async throws {
        await load()
        try storage.save(true, as: "off")
        isOff = true
        let report = await push.withdraw()
        keep(report)
        if report.failed.isEmpty { show("pushes are off") }
    }

    func turnPushesOn() async throws {
        await load()
        try storage.delete("off")
        isOff = false
        if let deviceToken { await register(deviceToken) }
    }
}
