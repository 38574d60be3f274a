#if os(Linux)
    import ExampleSupport
    import Foundation
    import Testing

    @testable import MayflyClient
    @testable import RoomsSkeleton

    /// The example's chats while they are loaded: calls come while the app still starts.
    struct ChatsTests {
        /// A phone's storage, locked at first, and its broker.
        private final class Phone: Storage, @unchecked Sendable {
            private let lock = NSLock()
            private var isLocked = true
            private var kept: [Chat]
            private var answered: [String] = []
            private var isHeld = true
            private var isUnreachable = false
            private var isOff = false
            private var shown: [String] = []
            private(set) var transport: ScriptedTransport!

            /// - Parameter nicknames: also the ids of the rooms.
            init(_ nicknames: [String], expiresAt: Date = .now + 3_600) throws {
                kept = try nicknames.map { name in
                    var room = try Room.sample(roomID: name)
                    room.expiresAt = expiresAt
                    return Chat(id: UUID(), nickname: name, room: room)
                }
                transport = ScriptedTransport { [weak self] _, request in
                    while self?.lock.withLock({ self?.isHeld }) == true { try await Task.sleep(for: .milliseconds(1)) }
                    if self?.lock.withLock({ self?.isUnreachable }) == true { throw MayflyError.unreachable("test") }
                    let room = request.headers["Authorization"]?.split(separator: " ").last ?? "?"
                    self?.lock.withLock { self?.answered.append("\(request.method) \(request.url.path) \(room)") }
                    let body = #"{"ref":"00112233445566778899aabbccddeeff","expiresAt":"2030-01-01T00:00:00Z","purged":1}"#
                    return TransportResponse(status: 200, contentType: "application/json", retryAfter: nil, body: Data(body.utf8))
                }
            }

            /// What the broker has answered, as "method path room".
            var answers: [String] { lock.withLock { answered } }
            var nicknames: [String] { lock.withLock { kept.map(\.nickname) } }
            var lines: [String] { lock.withLock { shown } }
            func id(_ nickname: String) throws -> Chat.ID {
                try #require(lock.withLock { kept.first { $0.nickname == nickname }?.id })
            }

            func unlock() { lock.withLock { isLocked = false } }
            /// The broker answers from now on.
            func release(isUnreachable: Bool = false) { lock.withLock { (isHeld, self.isUnreachable) = (false, isUnreachable) } }

            func save(_ value: some Encodable, as id: String) throws {
                lock.withLock {
                    guard let chat = value as? Chat else {
                        isOff = true
                        return
                    }
                    kept = kept.filter { $0.id != chat.id } + [chat]
                }
            }

            func delete(_ id: String) throws {
                lock.withLock { if id == "off" { isOff = false } else { kept.removeAll { $0.id.uuidString == id } } }
            }

            func load<Value: Decodable>(_ type: Value.Type, as id: String) throws -> Value? { lock.withLock { isOff } as? Value }

            func load<Value: Decodable>(_ type: Value.Type) throws -> [Value] {
                try lock.withLock {
                    if isLocked { throw CocoaError(.fileReadNoPermission) }
                    return kept.compactMap { $0 as? Value }
                }
            }

            func chats(show: (@Sendable (String) -> Void)? = nil) throws -> Chats {
                let url = URL(string: "https://push.example.org")!
                return Chats(
                    client: try Client(baseURL: url, environment: .sandbox, transport: transport), storage: self,
                    show: show ?? { line in self.lock.withLock { self.shown.append(line) } })
            }
        }

        /// Apple gives the phone a token before its first unlock. The load then sends the token to each room, and waits for the broker.
        private func loading(_ phone: Phone, _ chats: Chats) async throws -> Task<Void, Never> {
            await chats.register(Data([1]))
            phone.unlock()
            let load = Task { await chats.load() }
            try await eventually { phone.transport.requests.isEmpty ? nil : true }
            return load
        }

        @Test func aChatDeletedDuringTheLoadStaysDeleted() async throws {
            let phone = try Phone(["Ann", "Ben"])
            let chats = try phone.chats()
            let load = try await loading(phone, chats)
            let ben = try phone.id("Ben")
            let delete = Task { try await chats.delete(ben) }
            // Time for a call that doesn't wait.
            try await Task.sleep(for: .milliseconds(200))
            phone.release()
            await load.value
            try await delete.value
            await chats.register(Data([2]))
            let answers = phone.answers
            let deleted = try #require(answers.firstIndex(of: "DELETE /api/room Ben"))
            #expect(!answers[deleted...].contains("PUT /api/room/token Ben"), "\(answers)")
            #expect(phone.nicknames == ["Ann"])
        }

        @Test func pushesAreOffInEveryRoomOnceTheUserReadsIt() async throws {
            let phone = try Phone(["Ann", "Ben", "Cy"])
            let (seen, continuation) = AsyncStream.makeStream(of: [String].self)
            let chats = try phone.chats { if $0 == "pushes are off" { continuation.yield(phone.answers) } }
            let load = try await loading(phone, chats)
            let off = Task { try await chats.turnPushesOff() }
            try await Task.sleep(for: .milliseconds(200))
            phone.release()
            await load.value
            try await off.value
            let answers = try #require(await seen.first { _ in true })
            #expect(Set(answers.filter { $0.hasPrefix("DELETE") }.map { $0.suffix(3) }).count == 3, "\(answers)")
        }

        @Test func pushesStayOffUntilTheUserTurnsThemOn() async throws {
            let phone = try Phone(["Ann"])
            phone.unlock()
            phone.release()
            try await phone.chats().turnPushesOff()
            let next = try phone.chats()
            await next.register(Data([1]))
            #expect(!phone.answers.contains("PUT /api/room/token Ann"))
            try await next.turnPushesOn()
            #expect(phone.answers.last == "PUT /api/room/token Ann")
        }

        @Test func theAppsReturnSendsATokenThatDidNotArrive() async throws {
            let phone = try Phone(["Ann"])
            phone.unlock()
            phone.release(isUnreachable: true)
            let chats = try phone.chats()
            await chats.register(Data([1]))
            #expect(!phone.lines.contains("registered"))
            phone.release()
            await chats.returned()
            #expect(phone.answers == ["PUT /api/room/token Ann"])
        }

        /// The user taps a second notification before the first chat is open. This side would stay present in both, and get no pushes there.
        @Test func twoChatsOpenedAtOnce() async throws {
            let (broker, phone) = (TestBroker.shared, try Phone([]))
            phone.unlock()
            let (client, rooms) = (
                try broker.client(), [try await broker.room().0, try await broker.room().0, try await broker.room().0]
            )
            let chats = Chats(client: client, storage: phone, show: { _ in })
            for (number, room) in rooms.enumerated() {
                try phone.save(Chat(id: UUID(), nickname: "\(number)", room: room), as: "")
            }
            await chats.open(try phone.id("0"))
            try await eventually("the first chat") { try await client.status(of: rooms[0]).creatorPresent ? true : nil }
            let ids = [try phone.id("1"), try phone.id("2")]
            await withTaskGroup { group in
                for id in ids { group.addTask { await chats.open(id) } }
            }
            try await eventually("one presence") {
                var present = 0
                for room in rooms where try await client.status(of: room).creatorPresent { present += 1 }
                return present == 1 ? true : nil
            }
        }

        /// The phone's clock may be wrong. The broker says which rooms are over.
        @Test(arguments: [(-3_600.0, ["Ann"]), (-90_000.0, [])])
        func aClockThatIsAnHourAheadForgetsNothing(endsIn: Double, kept: [String]) async throws {
            let phone = try Phone(["Ann"], expiresAt: .now + endsIn)
            phone.unlock()
            phone.release()
            await (try phone.chats()).load()
            #expect(phone.nicknames == kept)
        }
    }
#endif
