import Courier
import Ledger
import Policy
import Sealing
import Storage
import TLS
import Testing
import Vocabulary
import WebPush

@testable import Broker

/// Addresses whose app or push service this broker can't serve, and the size of sealed addresses.
@Suite struct SealedAddressTests {
    /// Answers no push, as if the broker were stopping. So jobs stay stored.
    private struct StoppingCourier: PushSender {
        func send(_ push: Push) async -> Outcome { .failed(status: 0, reason: .stopped, verdict: .keep) }
    }

    private static let served = Destination.apns(AppID(bundleID: "com.example.app"), .production)

    /// Replaces the creator's token by one that another configuration or release has sealed.
    /// - Returns: the token's ref.
    private func replace(
        _ fixture: BrokerFixture, in room: RoomID, _ address: PushAddress, size: AddressSize = .apnsOnly
    ) async throws -> Ref {
        let index = fixture.keys.roomIndex(room)
        let record = try #require(try await fixture.store.read { try $0.room(index) })
        let ref = Ref.random()
        let until = fixture.broker.policies.ledger.untilMs(expiryMs: record.expires)
        let context = TokenContext(
            generation: fixture.keys.currentGeneration, kind: .alert, slot: 1, expiryMs: record.expires,
            purgeID: ref.purgeID(untilMs: until))
        let row = TokenRecord(
            context, ref: try fixture.keys.sealRef(ref, context: context, room: room), room: index,
            sealed: try fixture.keys.sealToken(
                address, ref: ref, sealedAtMs: fixture.clock.now, context: context, room: room, size: size))
        let new = NewToken(row, sealedID: ref.sealedID(untilMs: until))
        let outcome = try await fixture.store.write {
            try $0.replaceToken(room: index, slot: 1, proven: false, previous: record.creator.token, token: new)
        }
        #expect(outcome == .replaced)
        return ref
    }

    // Promise: unserved-address-keeps-its-token
    @Test(arguments: [
        (Destination.apns(AppID(bundleID: "org.example.left"), .production), "is not configured any more"),
        (.apns(AppID(bundleID: "org.example.left"), .sandbox), "is not configured any more"),
        (.webPush(key: 1), "the VAPID key that their addresses were made for is not configured"),
        (.other(service: 3), "another service than APNs"),
    ]) func aPushToAnUnservedAddressFails(_ destination: Destination, _ told: String) async throws {
        let fixture = try await BrokerFixture(courier: { _ in StoppingCourier() })
        for code in ["code-one", "code-two", "code-three"] {
            if code == "code-three" { fixture.clock.advance(61_000) }
            let made = try await fixture.create(code, token: try fixture.token())
            _ = try await fixture.accept(code)
            let token =
                switch destination {
                case .apns: try fixture.token()
                case .webPush: try Secret.random(100)
                case .other: try Secret(count: 0) { _ in }
                }
            _ = try await replace(fixture, in: made.room, PushAddress(destination, token: token))
            let joiner = fixture.caller(made.room, "joiner")
            #expect(try await fixture.broker.rooms.report(joiner, leaving: false) == .queued)
            await fixture.broker.outbox.drain(deadlineMs: 5_000)
            #expect(try await fixture.store.read { try $0.jobs() }.isEmpty)
            #expect(try await fixture.broker.rooms.status(made.room).creatorHasToken)
        }
        // Three pushes failed, with one alarm a minute. Of pushes to browsers only the first alarms: strangers could cause more for days.
        let alarms = if case .webPush = destination { 1 } else { 2 }
        let lines = fixture.prints.all.filter { $0.hasPrefix("courier: ") }
        #expect(lines.count == alarms && lines[0].contains(told) && lines[0].contains("is purged"))
        if case .apns(let app, _) = destination { #expect(!lines[0].contains("\(app)")) }
        #expect(fixture.broker.metrics.value(.alarms) == alarms)
        let counters: [Metrics.Counter] =
            destination == .webPush(key: 1)
            ? [.webPushesFailed, .webPushesNotConfigured] : [.pushesFailed, .pushesNotConfigured]
        for counter in counters {
            #expect(fixture.broker.metrics.value(counter) == 3)
        }
        let entries = try await fixture.store.closedEntries(before: .max, limit: 1_000).map {
            String(decoding: $0.bytes, as: UTF8.self)
        }
        let failed = entries.filter { $0.contains(#""op":"push.failed""#) }
        #expect(failed.count == 3)
        #expect(failed.allSatisfy { $0.contains(#""reason":"TopicDisallowed""#) && $0.contains(#""status":0"#) })
        try await fixture.end()
    }

    /// An operator may have chosen such a template, so nothing is broken.
    @Test func aTemplateWithoutATextForBrowsersRaisesNoAlarm() async throws {
        let text =
            #""pushType": "alert",\#n      "priority": 10,\#n      "ttlSeconds": 120,\#n      "body": "Your chat partner is waiting","#
        let silent = [
            (old: text, new: #""pushType": "background", "priority": 5, "ttlSeconds": 120,"#),
            (old: #""sound": "default",\#n      "mutable-content": 1,"#, new: ""),
        ]
        let key = try VAPIDKey(ES256.PrivateKey())
        let service = WebPushService(
            keys: [key], contact: "mailto:ops@chat.example", origin: "https://app.example", hosts: .public)
        let fixture = try await BrokerFixture(
            courier: { _ in StoppingCourier() }, policy: .builtIn("rooms", replacing: silent), webPush: service)
        let made = try await fixture.create(token: try fixture.token())
        _ = try await fixture.accept()
        let address = PushAddress(.webPush(key: key.number), token: try Secret.random(100))
        _ = try await replace(fixture, in: made.room, address)
        #expect(try await fixture.broker.rooms.report(fixture.caller(made.room, "joiner"), leaving: false) == .queued)
        await fixture.broker.outbox.drain(deadlineMs: 5_000)
        #expect(try await fixture.store.read { try $0.jobs() }.isEmpty)
        #expect(fixture.broker.metrics.value(.alarms) == 0 && fixture.prints.all.isEmpty)
        try await fixture.end()
    }

    // MARK: The deployment's size

    // Promise: address-size-of-the-deployment
    @Test(arguments: AddressSize.allCases) func newSealsHaveTheDeploymentsSize(_ size: AddressSize) async throws {
        let fixture = try await BrokerFixture(courier: { _ in StoppingCourier() }, addressSize: size)
        let made = try await fixture.create(token: try fixture.token())
        _ = try await fixture.accept(token: try fixture.token(8))
        let index = fixture.keys.roomIndex(made.room)
        let record = try #require(try await fixture.store.read { try $0.room(index) })
        for side in [record.creator, try #require(record.joiner)] {
            let name = try #require(side.token)
            let row = try #require(try await fixture.store.read { try $0.token(name, expires: record.expires) })
            #expect(row.sealed.count == size.sealedCount && row.ref.count == 56)
        }
        #expect(try await fixture.broker.rooms.report(fixture.caller(made.room, "joiner"), leaving: false) == .queued)
        let job = try #require(try await fixture.store.read { try $0.jobs() }.first)
        #expect(job.sealed.count == size.sealedCount)
        let content = try fixture.keys.openJob(job.sealed.span, context: job.context)
        #expect(content.address == PushAddress(Self.served, token: try fixture.token()))
        try await fixture.end()
    }

    /// The size was raised, or another release sealed with a larger one.
    @Test(arguments: AddressSize.allCases, AddressSize.allCases)
    func rowsOfTheOtherSizeStillOpen(_ size: AddressSize, _ earlier: AddressSize) async throws {
        let fixture = try await BrokerFixture(courier: { _ in StoppingCourier() }, addressSize: size)
        let made = try await fixture.create(token: try fixture.token(1))
        _ = try await fixture.accept()
        let token = try fixture.token(2)
        let ref = try await replace(fixture, in: made.room, PushAddress(Self.served, token: token), size: earlier)
        let caller = fixture.caller(made.room, "creator", made.member)
        let again = try await fixture.broker.rooms.replaceToken(caller, with: .test(token))
        #expect(again.ref == ref, "the same token again changes nothing")
        #expect(try await fixture.broker.rooms.report(fixture.caller(made.room, "joiner"), leaving: false) == .queued)
        let job = try #require(try await fixture.store.read { try $0.jobs() }.first)
        #expect(job.sealed.count == size.sealedCount)
        try await fixture.end()
    }

    @Test func theSizeIsReadFromTheDatabase() async throws {
        let fixture = try await BrokerFixture()
        func recorded() async throws -> AddressSize { try await AddressSize.recorded(in: fixture.store) }
        #expect(try await recorded() == .apnsOnly)
        for size in AddressSize.allCases {
            try await fixture.store.setMark("address.bytes", [UInt8](bigEndian: UInt64(size.rawValue)))
            #expect(try await recorded() == size)
        }
        for other in [[], [0], [UInt8](bigEndian: UInt64(616)), [UInt8](repeating: 0xff, count: 9)] as [[UInt8]] {
            try await fixture.store.setMark("address.bytes", other)
            let refusal = await #expect(throws: StoreError.self) { try await recorded() }
            #expect(refusal?.description.contains("in a size that this release can't read") == true)
        }
        try await fixture.end()
    }
}
