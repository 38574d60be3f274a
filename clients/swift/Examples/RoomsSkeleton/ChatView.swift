import MayflyClient
import SwiftUI

#if MAYFLY_APPLE_STUBS
    import MayflyApple
#endif

/// An open chat.
struct ChatView: View {
    let client: Client
    let room: Room
    @State private var isPeerHere = false

    var body: some View {
        Text(isPeerHere ? "Ben is here" : "Waiting for Ben")
            .task { await stay() }
    }

    /// Runs until the chat closes, which cancels the task, or the room ends.
    private func stay() async {
        let session = await client.join(room)
        let lifecycle = AppLifecycle(session)
        for await event in session {
            switch event {
            case .joined(let peerPresent, _): isPeerHere = peerPresent
            case .peerJoined: isPeerHere = true
            case .peerLeft: isPeerHere = false
            case .ended(let ending): print("The chat is over: \(ending)")
            case .peerAccepted, .disconnected: break
            }
        }
        withExtendedLifetime(lifecycle) {}
    }
}

/// The app's settings.
struct SettingsView: View {
    let permission: NotificationPermission

    var body: some View {
        NotificationSettingsView(permission) { EmptyView() }
    }
}
