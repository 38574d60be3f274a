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
    private var loading: Task<Void, Never>?
    private var turns = Turns()
    private var session: RoomSession?
    private var lifecycle: AppLifecycle?

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
        } catch {
            // Before the first unlock nothing can be read. The next call tries again.
            loading = nil
            return show("the chats can't be read now")
        }
        chats += kept
        for chat in kept {
            // A room may end while no app runs. The phone's clock may be wrong, so within a day the broker decides.
            if chat.room.expiresAt + 86_400 < .now { await forget(chat) } else { keep(await push.add(chat.room)) }
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

    func accept(typed: String, nickname: String) async throws {
        await load()
        guard let code = JoinCode(typed: typed) else { return show("that is no code") }
        let token = await push.token
        let room = try await client.acceptRoom(code: code, token: token)
        await add(Chat(id: UUID(), nickname: nickname, room: room), sent: token)
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
        keep(await push.register(deviceToken))
    }

    /// Takes over rooms with a new `ref`, and forgets those that ended.
    private func keep(_ report: PushRegistration.Report) {
        for room in report.updated {
            guard let index = chats.firstIndex(where: { $0.room.roomID == room.roomID }) else { continue }
            chats[index].room = room
            save(chats[index])
        }
        for chat in chats where report.ended.contains(where: { $0.roomID == chat.room.roomID }) { remove(chat) }
    }

    /// The user opens a chat: this side is present until the chat closes.
    func open(nickname: String) async {
        // Otherwise the second of two quick taps would leave this side present in both chats, without pushes.
        let task = turns.add { await self.openNow(nickname) }
        _ = await task.result
    }

    private func openNow(_ nickname: String) async {
        await load()
        guard let chat = chats.first(where: { $0.nickname == nickname }) else { return show("unknown chat") }
        await session?.leave()
        let session = await client.join(chat.room)
        self.session = session
        lifecycle = await AppLifecycle(session)
        await RoomNotification.clear(chat.room)
        Task {
            for await event in session { await heard(event, in: chat) }
        }
    }

    private func heard(_ event: RoomEvent, in chat: Chat) async {
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
        case .ended(.failed(let error)): show("failed: \(error)")
        }
    }

    /// The user tapped a notification.
    func tapped(_ push: ReceivedPush) async {
        guard let notification = await notification(push) else { return show("unknown push") }
        show("push about \(notification.nickname)")
        await open(nickname: notification.nickname)
    }

    /// Whether a push is about the chat on the screen.
    func isOpen(_ push: ReceivedPush) async -> Bool {
        await notification(push).map { $0.room.roomID == session?.room.roomID } ?? false
    }

    private func notification(_ push: ReceivedPush) async -> RoomNotification? {
        await load()
        return RoomNotification(payload: push.payload, rooms: chats.map { ($0.room, $0.nickname) })
    }

    /// The user deletes a chat: the room ends for both, and the broker destroys its tokens.
    func delete(nickname: String) async throws {
        await load()
        guard let chat = chats.first(where: { $0.nickname == nickname }) else { return show("unknown chat") }
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
        if session?.room.roomID == chat.room.roomID { (session, lifecycle) = (nil, nil) }
    }

    private func remove(_ chat: Chat) {
        chats.removeAll { $0.id == chat.id }
        do { try storage.delete(chat.id.uuidString) } catch { show("the chat can't be deleted from the storage") }
    }

    /// The user turns notifications off: no room has this phone's token any more.
    func turnPushesOff() async {
        await load()
        keep(await push.withdraw())
        show("pushes are off")
    }
}
