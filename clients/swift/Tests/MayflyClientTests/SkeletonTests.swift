#if os(Linux)
    import Foundation
    import Testing

    @testable import MayflyClient

    struct SkeletonTests {
        /// Two people, from the code to the room's end: a new token, a suspended app, a push, a tap, a deletion.
        @Test func theStoryOfARoom() async throws {
            let broker = TestBroker.shared
            let (annsPhone, bensPhone) = (try Phone(), try Phone())
            let (ann, ben) = (try annsPhone.launch(), try bensPhone.launch())
            let (old, new, bens) = (PushToken.random(), PushToken.random(), PushToken.random())
            ann.type("token \(old.hex)")
            try await ann.read("registered")
            ann.type("create Ben")
            let code = try await ann.read("code ")
            // The user is asked when there is something to be notified of.
            try await ann.read("notifications are on")
            ann.type("token \(new.hex)")
            try await ann.read("registered")
            ann.type("open Ben")
            try await ann.read("waiting for Ben")

            ben.type("token \(bens.hex)")
            try await ben.read("registered")
            ben.type("accept \(code.lowercased()) Ann")
            try await ben.read("done accept")
            try await ann.read("Ben used the code")
            // A socket that joined within the last 2 s counts as alive.
            try await Task.sleep(for: .milliseconds(2_200))

            ann.suspend()
            ben.type("open Ann")
            try await ben.read("Ann is here")
            try await ben.read("Ann is away, and gets a push")
            let push = try await broker.payload(to: new)
            #expect(try await broker.pushes(to: old).isEmpty)

            ann.resume()
            try await ann.read("Ben came")
            // No banner for the chat on the screen. In the background there is one, with the phone's own name.
            try ann.push(push)
            try await ann.read("no banner")
            ann.type("background")
            try await ben.read("Ann left")
            let handle = try ann.push(push)
            try await ann.read("banner Ben | ")
            ann.type("foreground")
            try await ben.read("Ann came")
            ann.type("tap \(handle)")
            try await ann.read("push about Ben")

            ann.type("delete Ben")
            try await ann.read("deleted, 2 tokens destroyed")
            try await ben.read("the chat is over")
            try ann.push(push)
            try await ann.read("banner")
            ann.type("tap \(handle)")
            try await ann.read("unknown push")
            ben.type("delete Ann")
            try await ben.read("unknown chat")
            // What ended is kept nowhere.
            #expect(try annsPhone.kept.isEmpty && bensPhone.kept.isEmpty)
        }

        /// iOS ends the app, a push comes, and the user taps it: the next process knows whose it is, and so does the notification extension.
        @Test func aTapAfterAColdStart() async throws {
            let broker = TestBroker.shared
            let (annsPhone, bensPhone) = (try Phone(), try Phone())
            let (first, ben) = (try annsPhone.launch(), try bensPhone.launch())
            let (old, new) = (PushToken.random(), PushToken.random())
            first.type("token \(old.hex)")
            try await first.read("registered")
            first.type("create Ben")
            let code = try await first.read("code ")
            ben.type("accept \(code) Ann")
            try await ben.read("done accept")
            first.terminate()

            ben.type("open Ann")
            try await ben.read("waiting for Ann")
            let push = try await broker.payload(to: old)

            let second = try annsPhone.launch()
            second.type("permit")
            second.type("background")
            // The extension's process only reads.
            let handle = try second.push(push)
            try await second.read("banner Ben | ")
            second.type("foreground")
            second.type("tap \(handle)")
            try await second.read("push about Ben")
            try await second.read("Ben is here")
            try await ben.read("Ann came")

            // A kept room gets each new token, and is kept again with its new ref.
            let before = try annsPhone.keptText
            second.type("token \(new.hex)")
            try await second.read("registered")
            let after = try annsPhone.keptText
            #expect(before.contains("\"ref\"") && after.contains("\"ref\"") && before != after)
            second.terminate()
            let third = try annsPhone.launch()
            third.type("off")
            try await third.read("pushes are off")
            third.type("delete Ben")
            try await third.read("deleted, 0 tokens destroyed")
            third.type("on")
            try await third.read("done on")
            #expect(try annsPhone.kept.isEmpty)
        }

        /// One unreadable chat must not cost the others, nor be destroyed by a version of the app that can't read it.
        @Test func aDamagedChatLeavesTheOthers() async throws {
            let (annsPhone, bensPhone) = (try Phone(), try Phone())
            let (first, ben) = (try annsPhone.launch(), try bensPhone.launch())
            for name in ["Ben", "Bob"] {
                first.type("create \(name)")
                let code = try await first.read("code ")
                ben.type("accept \(code) \(name)s")
                try await ben.read("done accept")
                let plain = code.replacingOccurrences(of: "-", with: "")
                for file in try annsPhone.kept + bensPhone.kept {
                    let text = try String(contentsOf: file, encoding: .utf8)
                    #expect(!text.contains(plain) && !text.contains(code))
                    #expect(try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? Int == 0o600)
                }
            }
            first.terminate()
            let bens = try #require(try annsPhone.kept.first { try String(contentsOf: $0, encoding: .utf8).contains("\"Ben\"") })
            let whole = try Data(contentsOf: bens)
            for damaged in [Data(), whole.prefix(whole.count / 2), Data([0xff, 0x00]), Data("[]".utf8)] {
                try damaged.write(to: bens)
                let app = try annsPhone.launch()
                app.type("open Bob")
                try await app.read("waiting for Bob")
                app.type("open Ben")
                try await app.read("unknown chat")
                app.terminate()
                #expect(try Data(contentsOf: bens) == damaged)
            }
            try whole.write(to: bens)
            let app = try annsPhone.launch()
            app.type("open Ben")
            try await app.read("waiting for Ben")
        }

        /// A day after a room's end nobody asks the broker about it.
        @Test func aChatWhoseTimeIsOverIsForgottenAtTheLaunch() async throws {
            let phone = try Phone()
            let first = try phone.launch()
            first.type("create Ben")
            try await first.read("done create")
            first.terminate()
            let file = try #require(try phone.kept.first)
            var chat = try #require(try JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any])
            var room = try #require(chat["room"] as? [String: Any])
            room["expiresAt"] = try #require(room["expiresAt"] as? Double) - 90_100
            chat["room"] = room
            try JSONSerialization.data(withJSONObject: chat).write(to: file)
            let second = try phone.launch()
            second.type("open Ben")
            try await second.read("unknown chat")
            #expect(try phone.kept.isEmpty)
        }

        /// A user who refuses gets no banners. Presence goes on, and Settings can change it.
        @Test func refusedPermissionAndNoToken() async throws {
            let (annsPhone, bensPhone) = (try Phone(), try Phone())
            let (ann, ben) = (try annsPhone.launch(), try bensPhone.launch())
            ann.type("refuse")
            ann.type("notoken")
            try await ann.read("no token from Apple")
            ann.type("create Ben")
            let code = try await ann.read("code ")
            try await ann.read("notifications are off, see Settings")
            // Nobody is asked twice.
            ann.type("ask")
            try await ann.read("permission denied")
            // Nobody is asked after words that are no code, either.
            ben.type("accept nothing Ann")
            try await ben.read("that is no code")
            ben.type("refuse")
            ben.type("accept \(code) Ann")
            try await ben.read("notifications are off")
            try await ben.read("done accept")
            ben.type("open Ann")
            try await ben.read("waiting for Ann")
            ann.type("open Ben")
            try await ben.read("Ann came")
            // Apple has a token at the next launch, also without permission: the broker knocks, and the phone shows nothing.
            let token = PushToken.random()
            ann.type("token \(token.hex)")
            try await ann.read("registered")
            ann.type("background")
            try await ben.read("Ann left")
            ann.type("settings")
            try await ann.read("opened app-settings:notifications")
            ann.type("permit")
            ann.type("foreground")
            ann.type("ask")
            try await ann.read("permission authorized")
        }
    }
#endif
