#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import Foundation
    import MayflyApple
    import SwiftUI
    import Testing

    @testable import MayflyClient
    @testable import RoomsSkeleton

    extension AppleTests {
        /// The open chat of the example for rooms.
        @MainActor
        struct OpenChatTests {
            private let broker = TestBroker.shared
            private let phone: Phone
            private let storage: FolderStorage
            private let chats: Chats

            init() throws {
                phone = try Phone()
                storage = try FolderStorage(phone.folder)
                chats = Chats(client: try broker.client(), storage: storage, show: { _ in })
            }

            /// A kept chat, and the other person's side of its room.
            private func chat(_ nickname: String) async throws -> (Chat, Room) {
                let (mine, theirs) = try await broker.room()
                let chat = Chat(id: UUID(), nickname: nickname, room: mine)
                try storage.save(chat, as: chat.id.uuidString)
                return (chat, theirs)
            }

            private func push(about chat: Chat) throws -> ReceivedPush {
                ReceivedPush(["roomId": try #require(chat.room.handle)])
            }

            @Test func aTapWhereTwoChatsHaveOneNickname() async throws {
                for chat in [try await chat("Ben").0, try await chat("Ben").0] {
                    await chats.tapped(try push(about: chat))
                    try await eventually("presence") {
                        try await broker.client().status(of: chat.room).creatorPresent ? true : nil
                    }
                }
            }

            private final class Heard { var events: [RoomEvent] = [] }

            /// The other side must not see this one leave and come again.
            @Test func aTapOnTheOpenChat() async throws {
                let (chat, theirs) = try await chat("Ben")
                let (other, heard) = (try await broker.client().join(theirs), Heard())
                let listening = Task { for await event in other { heard.events.append(event) } }
                try await eventually("the other side") { heard.events.isEmpty ? nil : true }
                await chats.open(chat.id)
                try await eventually("presence") { heard.events.last == .peerJoined ? true : nil }
                await chats.tapped(try push(about: chat))
                try await Task.sleep(for: .milliseconds(500))
                #expect(heard.events.count == 2)
                await other.leave()
                await listening.value
            }

            @Test func theViewOfAChat() async throws {
                let (chat, theirs) = try await chat("Ben")
                let view = ChatView(chats: chats, chat: chat)
                func text() -> String? { view.stubTree.compactMap { $0 as? Text }.first?.stubText }
                #expect(text() == "Waiting for Ben")
                await view.stubAppear()
                #expect(await chats.isOpen(try push(about: chat)))
                let (other, heard) = (try await broker.client().join(theirs), Heard())
                let listening = Task { for await event in other { heard.events.append(event) } }
                try await eventually("the other side") { text() == "Ben is here" ? true : nil }
                view.stubDisappear()
                try await eventually("absence") { heard.events.last == .peerLeft(delivery: nil) ? true : nil }
                try await eventually("the end") { text() == "Waiting for Ben" ? true : nil }
                #expect(await !chats.isOpen(try push(about: chat)))
                await other.leave()
                await listening.value
            }
        }
    }
#endif
