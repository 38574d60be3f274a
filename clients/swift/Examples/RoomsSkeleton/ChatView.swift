import MayflyClient
import SwiftUI

#if MAYFLY_APPLE_STUBS
    import MayflyApple
#endif

/// A chat on the screen.
struct ChatView: View {
    let chats: Chats
    let chat: Chat

    var body: some View {
        Text(chats.presence.isPeerHere(in: chat.id) ? "\(chat.nickname) is here" : "Waiting for \(chat.nickname)")
            .task { await chats.open(chat.id) }
            .onDisappear { Task { await chats.close(chat.id) } }
    }
}

/// Whether the other person is in the open chat, for its view.
@MainActor
@Observable
final class Presence {
    private var chat: Chat.ID?

    nonisolated init() {}

    func isPeerHere(in id: Chat.ID) -> Bool { chat == id }

    func heard(_ event: RoomEvent, in id: Chat.ID) {
        switch event {
        case .joined(peerPresent: true, _), .peerJoined: chat = id
        case .peerAccepted: break
        // Also at the end of a chat that another one has replaced.
        case .joined, .peerLeft, .disconnected, .ended: if chat == id { chat = nil }
        }
    }
}

/// The app's settings.
struct SettingsView: View {
    let permission: NotificationPermission

    var body: some View {
        NotificationSettingsView(permission) { EmptyView() }
    }
}
