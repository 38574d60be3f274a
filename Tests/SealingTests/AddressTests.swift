import Sodium
import Testing
import Vocabulary

@testable import Sealing

/// Push addresses of any service inside the seals of tokens and jobs.
@Suite struct AddressTests {
    private let folder: KeyFolder
    private let ring: KeyRing
    private let room: RoomID
    private let app = AppID(bundleID: "org.example.app")
    private let expiry = KeyFolder.startMs + 3_600_000

    init() throws {
        folder = try KeyFolder()
        ring = try folder.load()
        room = try .random()
    }

    private func context(_ kind: TokenKind = .alert) -> TokenContext {
        TokenContext(generation: 1, kind: kind, slot: 1, expiryMs: expiry, purgeID: EntryID(high: 1, low: 2))
    }

    private func jobContext(_ kind: TokenKind = .alert) -> JobContext {
        JobContext(
            generation: 1, job: JobID(high: 3, low: 4), purgeID: EntryID(high: 1, low: 2), kind: kind, slot: 1,
            template: "waiting", deadlineMs: KeyFolder.startMs + 120_000, expiryMs: expiry)
    }

    private func seal(_ address: PushAddress, _ size: AddressSize, _ kind: TokenKind = .alert) throws -> [UInt8] {
        try ring.sealToken(
            address, ref: Ref(high: 5, low: 6), sealedAtMs: KeyFolder.startMs, context: context(kind), room: room, size: size)
    }

    /// Neither the app, the environment nor the token's length shows.
    // Promise: address-sealed
    @Test func allAddressesOfADeploymentHaveOneLength() throws {
        let long = AppID(bundleID: String(repeating: "org.example", count: 20))
        for size in AddressSize.allCases {
            for destination: Destination in [.apns(app, .production), .apns(long, .sandbox)] {
                for count in [1, 32, 100] {
                    let address = PushAddress(destination, token: try .random(count))
                    let sealed = try seal(address, size)
                    #expect(sealed.count == size.rawValue + 40)
                    #expect(try ring.open(sealed, context(), room).address == address)
                    let job = JobContent(address: address, sealedAtMs: 7, handle: Handle(1))
                    let sealedJob = try ring.sealJob(job, context: jobContext(), size: size)
                    #expect(sealedJob.count == size.rawValue + 40)
                    #expect(try ring.open(sealedJob, jobContext()).address == address)
                }
            }
        }
    }

    /// Live Activities exist at Apple only, so their length names no service.
    @Test func liveActivitiesStaySmall() throws {
        let address = try PushAddress.at([1, 2])
        for size in AddressSize.allCases {
            let sealed = try seal(address, size, .liveActivity)
            #expect(sealed.count == 200)
            #expect(try ring.open(sealed, context(.liveActivity), room).address == address)
            let job = JobContent(address: address, sealedAtMs: 7, handle: Handle(1))
            #expect(try ring.sealJob(job, context: jobContext(.liveActivity), size: size).count == 200)
        }
    }

    @Test func theDestinationIsPartOfTheAddress() throws {
        let token = try Secret.random(32)
        let address = PushAddress(.apns(app, .production), token: token)
        #expect(address == PushAddress(.apns(AppID(bundleID: "org.example.app"), .production), token: token))
        #expect(address != PushAddress(.apns(app, .sandbox), token: token))
        #expect(address != PushAddress(.apns(AppID(bundleID: "org.example.ap"), .production), token: token))
        #expect(address != PushAddress(.apns(app, .production), token: try .random(32)))
    }

    // MARK: Plaintexts of other releases

    /// Seals any plaintext as a token's.
    private func seal(plaintext: [UInt8]) throws -> [UInt8] {
        guard var derivation = try ring.derivation(1, expiry, .token) else { throw SealingError.outOfReach }
        derivation.add(context().slot)
        derivation.add(room.secret)
        return SealedBox.seal(
            plaintext.span, associatedData: context().associatedData, nonce: .random, key: try derivation.secret())
    }

    /// - Parameter length: nil for the address's.
    private func plaintext(
        service: UInt8, variant: UInt8 = 1, reserved: UInt8 = 0, _ address: [UInt8], length: Int? = nil, size: Int = 160
    ) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 24) + [service, variant, reserved]
        bytes.append(bigEndian: UInt16(length ?? address.count))
        bytes += address
        return bytes + [0x80] + [UInt8](repeating: 0, count: size - bytes.count - 1)
    }

    @Test(arguments: [82, 129, 578]) func subscriptionsAreSealedInOneLength(_ count: Int) throws {
        let address = PushAddress(.webPush(key: 7), token: try Secret.random(count))
        let sealed = try seal(address, .anyService)
        #expect(sealed.count == AddressSize.anyService.sealedCount)
        #expect(try ring.open(sealed, context(), room).address == address)
        let job = JobContent(address: address, sealedAtMs: 7, handle: Handle(1))
        // Also at a node that has not learnt of the longer size.
        for size in AddressSize.allCases {
            let sealedJob = try ring.sealJob(job, context: jobContext(), size: size)
            #expect(sealedJob.count == AddressSize.anyService.sealedCount)
            #expect(try ring.open(sealedJob, jobContext()).address == address)
        }
    }

    @Test(arguments: [(81, 608), (81, 160), (0, 160)]) func shorterOnesDoNotOpen(_ count: Int, _ size: Int) throws {
        let sealed = try seal(plaintext: plaintext(service: 2, variant: 9, Sodium.randomBytes(count), size: size))
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context(), room) }
    }

    @Test func aSubscriptionWithOtherKeysIsTheSameDevice() throws {
        func address(_ keys: UInt8, _ endpoint: String) throws -> PushAddress {
            let bytes = [UInt8](repeating: keys, count: 81) + endpoint.utf8
            return PushAddress(.webPush(key: 1), token: try Secret(copying: bytes.span))
        }
        let one = try address(1, "a.example/x")
        #expect(try one.device == address(2, "a.example/x").device && one.device != address(1, "a.example/y").device)
        #expect(try one != address(2, "a.example/x"))
    }

    /// A release that serves FCM may have run on this database.
    @Test(arguments: [0, 3, 255] as [UInt8]) func addressesOfOtherServicesOpenWithoutTheirSecret(_ service: UInt8) throws {
        for (count, size) in [(0, 160), (130, 160), (578, 608)] {
            let sealed = try seal(
                plaintext: plaintext(service: service, variant: 9, Sodium.randomBytes(count), size: size))
            let opened = try ring.open(sealed, context(), room).address
            #expect(opened.destination == .other(service: service) && opened.token.count == 0)
            // A push to it can be stored.
            let job = JobContent(address: opened, sealedAtMs: 7, handle: Handle(1))
            let sealedJob = try ring.sealJob(job, context: jobContext(), size: .apnsOnly)
            #expect(try ring.open(sealedJob, jobContext()).address == opened)
        }
    }

    @Test func malformedAddressesDoNotOpen() throws {
        let token = [UInt8](repeating: 7, count: 16 + 32)
        let opens = try seal(plaintext: plaintext(service: 1, token))
        #expect(try ring.open(opens, context(), room).address.token.count == 32)
        let malformed = [
            plaintext(service: 1, variant: 0, token), plaintext(service: 1, variant: 3, token),
            plaintext(service: 1, reserved: 1, token), plaintext(service: 2, reserved: 1, token),
            plaintext(service: 1, token, length: 47), plaintext(service: 1, token, length: 49),
            plaintext(service: 1, token, length: 0xffff),
            plaintext(service: 1, []), plaintext(service: 1, Array(token.prefix(16))),
            plaintext(service: 1, [UInt8](repeating: 7, count: 117)),
            [UInt8](repeating: 0, count: 160), [UInt8](repeating: 0xff, count: 160),
            plaintext(service: 1, token, size: 128), plaintext(service: 1, token, size: 161),
            plaintext(service: 1, token, size: 607), plaintext(service: 1, token, size: 640),
        ]
        for (number, plaintext) in malformed.enumerated() {
            let sealed = try seal(plaintext: plaintext)
            #expect(throws: SealingError.doesNotOpen, "plaintext \(number)") { try ring.open(sealed, context(), room) }
        }
    }

    @Test func plaintextsReturnTheirSlots() throws {
        let sealed = try seal(.at([1]), .anyService)
        let used = Arena.plaintexts.used
        for _ in 0..<500 { _ = try ring.open(sealed, context(), room) }
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context(.voip), room) }
        #expect(Arena.plaintexts.used <= used)
    }
}
