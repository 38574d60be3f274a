import EventLoop
import Linux
import Policy
import Sealing
import Shares
import Sodium
import Testing

@testable import Broker

/// Strangers who guess join codes, compared with the odds that `policy show` prints.
@Suite struct GuessingCodesTests {
    /// A kind of code, and the number of rooms that wait with such a code.
    struct Kind: Sendable {
        let alphabet: [UInt8]
        let characters: Int
        let rooms: Int

        var codes: Double { (0..<characters).reduce(1) { product, _ in product * Double(alphabet.count) } }
        func draw() -> [UInt8] { (0..<characters).map { _ in alphabet.randomElement()! } }
    }

    static let digits = Array("0123456789".utf8)
    static let kinds = [
        Kind(alphabet: digits, characters: 4, rooms: 200), Kind(alphabet: digits, characters: 6, rooms: 500),
        Kind(alphabet: digits + Array("abcdefghijklmnopqrstuvwxyz".utf8), characters: 4, rooms: 300),
    ]

    /// The results of guesses: entered rooms by kind, wrong codes, and refusals, which reveal nothing.
    struct Answers: Sendable, Equatable {
        var entered = [0, 0, 0]
        var wrong = 0
        var refused = 0
        var told: Int { entered.reduce(wrong, +) }

        mutating func add(_ other: Answers) {
            for kind in entered.indices { entered[kind] += other.entered[kind] }
            wrong += other.wrong
            refused += other.refused
        }
    }

    private func makeRooms(_ fixture: BrokerFixture) async throws {
        for kind in Self.kinds {
            var codes: Set<[UInt8]> = []
            while codes.count < kind.rooms { codes.insert(kind.draw()) }
            try await withThrowingTaskGroup { group in
                for code in codes {
                    group.addTask(executorPreference: fixture.loop) {
                        _ = try await fixture.create(
                            String(decoding: code, as: UTF8.self), life: 90_000, codeLife: 86_400, from: Self.anyAddress())
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    /// Guesses so many codes at the same moment, each kind in turn.
    private func guess(_ fixture: BrokerFixture, _ count: Int, by guesser: Guessing.Guesser) async
        -> Answers
    {
        await withTaskGroup { group in
            for number in 0..<count {
                group.addTask(executorPreference: fixture.loop) {
                    var answers = Answers()
                    let kind = number % Self.kinds.count
                    let request = AcceptRoom(
                        joinid: Self.kinds[kind].draw(), client: Array("a stranger".utf8), address: nil)
                    do {
                        _ = try await fixture.broker.rooms.accept(
                            request, from: guesser == .oneAddress ? BrokerFixture.here : Self.anyAddress())
                        answers.entered[kind] = 1
                    } catch {
                        switch BrokerError(thrown: error) {
                        case .roomNotFound, .roomAlreadyAccepted: answers.wrong = 1
                        case .tooManyRequests: answers.refused = 1
                        default: Issue.record("\(error)")
                        }
                    }
                    return answers
                }
            }
            return await group.reduce(into: Answers()) { $0.add($1) }
        }
    }

    static func anyAddress() -> SocketAddress { .v4(UInt32.random(in: 0..<1 << 30), port: 1) }

    /// 100,000 guesses: by one address in a day, by many in a sixth of a day. Each waiting room is "one certain room" of the printed table, so
    /// the share of entered rooms measures its odds.
    // Promise: guessing-odds-printed
    @Test(arguments: Guessing.Guesser.allCases) func aHundredThousandGuessesMatchThePrintedOdds(_ guesser: Guessing.Guesser)
        async throws
    {
        let fixture = try await BrokerFixture()
        try await makeRooms(fixture)
        let limits = fixture.broker.policies.rooms
        let (windows, budget) =
            switch guesser {
            case .oneAddress: (144, limits.wrongCodes.perAddress)
            case .everyAddress: (24, limits.wrongCodes.overall)
            }
        var (answers, left) = (Answers(), 100_000)
        for window in 0..<windows {
            var here = left / (windows - window)
            left -= here
            while here > 0 {
                // Concurrent guesses must be counted, too.
                let crowd = min(here, 150)
                answers.add(await guess(fixture, crowd, by: guesser))
                here -= crowd
            }
            fixture.clock.advance(budget.windowMs)
            _ = try fixture.keys.step(nowMs: fixture.clock.now)
        }
        #expect(answers.told + answers.refused == 100_000)
        // The answers stay within the budget. A right guess costs nothing.
        let told = windows * budget.count
        #expect(answers.wrong == told)
        let guessing = Guessing(limits)
        #expect(told * 144 / windows <= guessing.guessesPerDay(guesser, characters: 6))

        for (kind, entered) in zip(Self.kinds, answers.entered) {
            let chance = Self.chance(1 / kind.codes, tries: answers.told / Self.kinds.count)
            let honest = Self.range(of: kind.rooms, chance: chance, failing: 1e-10)
            #expect(honest.contains(entered), "\(entered) of \(kind.rooms) rooms, and honest were \(honest)")
            // The measured odds, for a whole day of such guesses only.
            let fell = Double(entered) / Double(kind.rooms)
            let day = Self.chance(fell, tries: Self.kinds.count * 144 / windows)
            let printed = guessing.hitsWithinDay(
                kind.alphabet.count == 10 ? .digits : .alphanumerics, characters: kind.characters, rooms: 1, guesser: guesser)
            let most = Double(honest.upperBound) / Double(kind.rooms)
            print(
                "guessed by \(guesser): \(entered) of \(kind.rooms) rooms with codes of 1 in \(Int(kind.codes)); a day: \(day), printed: \(printed)"
            )
            #expect(day <= max(printed, Self.chance(most, tries: Self.kinds.count * 144 / windows)))
        }
        try await fixture.end()
    }

    /// All guesses are made at one moment, before any is answered.
    @Test(arguments: Guessing.Guesser.allCases) func aBurstStaysWithinTheBudget(_ guesser: Guessing.Guesser) async throws {
        let fixture = try await BrokerFixture()
        try await makeRooms(fixture)
        let limits = fixture.broker.policies.rooms
        let most = guesser == .oneAddress ? limits.wrongCodes.perAddress.count : limits.wrongCodes.overall.count
        let answers = await guess(fixture, 3_000, by: guesser)
        #expect(answers.wrong == most)
        // Only guesses within the budget can enter rooms.
        let honest = Self.range(of: most + 200, chance: 200 / 10_000 / 3 + 0.001, failing: 1e-10)
        #expect(answers.entered.reduce(0, +) <= honest.upperBound)
        try await fixture.end()
    }

    // MARK: Making rooms to learn of codes

    /// Returns true if a create revealed whether its code is free.
    private func tells(_ fixture: BrokerFixture, _ code: [UInt8]) async throws -> Bool {
        let request = CreateRoom(
            joinid: code, lifeSeconds: 600, codeLifeSeconds: 600, client: Sodium.randomBytes(16), address: nil)
        do {
            let made = try await fixture.broker.rooms.create(request, from: Self.anyAddress())
            _ = try await fixture.broker.rooms.close(made.room)
            return true
        } catch {
            switch BrokerError(thrown: error) {
            case .joinCodeInUse, .tooManyShortCodes: return true
            case .tooManyRequests: return false
            default: throw error
            }
        }
    }

    private func told(_ fixture: BrokerFixture, of count: Int) async throws -> Int {
        try await withThrowingTaskGroup { group in
            for _ in 0..<count {
                group.addTask(executorPreference: fixture.loop) { try await tells(fixture, Self.kinds[1].draw()) }
            }
            return try await group.reduce(0) { $0 + ($1 ? 1 : 0) }
        }
    }

    /// A create reveals whether its code is free. All addresses together may create only so many rooms with short codes.
    @Test func creationsRevealFewCodes() async throws {
        let fixture = try await BrokerFixture()
        let own = try await fixture.create("123456", life: 3_600, codeLife: 3_600)
        let budget = fixture.broker.policies.rooms.shortCreations
        #expect(try await told(fixture, of: budget.count + 300) == budget.count - 1)
        // Then nothing is revealed about any code, but a room's owner may repeat its create.
        #expect(try await !tells(fixture, Array("123456".utf8)))
        #expect(try await !tells(fixture, Array("654321".utf8)))
        #expect(try await !fixture.create("123456", life: 3_600, codeLife: 3_600).isNew)
        _ = try await fixture.create("a long code")
        _ = try await fixture.broker.rooms.close(own.room)
        fixture.clock.advance(budget.windowMs)
        #expect(try await told(fixture, of: budget.count + 300) == budget.count)
        try await fixture.end()
    }

    /// While the limit of waiting rooms is reached, a refused create reveals nothing. After a restart it reveals whether its code is free.
    @Test func fullShortCodesRevealNoMore() async throws {
        let fixture = try await BrokerFixture()
        let (budget, shares) = (fixture.broker.policies.rooms.shortCreations, fixture.broker.shares)
        for number in 0..<budget.count {
            _ = try await fixture.create("c\(number)", life: 3_600, codeLife: 3_600, from: Self.anyAddress())
        }
        fixture.clock.advance(budget.windowMs)
        for code in ["another", "c1"] {
            await #expect(throws: BrokerError.tooManyShortCodes) { try await fixture.create(code, client: "other") }
        }
        #expect(shares.used(.shortCreations, now: fixture.clock.now) == 0)
        shares.clear(.shortCodes)
        await #expect(throws: BrokerError.tooManyShortCodes) { try await fixture.create("another") }
        #expect(try await told(fixture, of: budget.count + 300) == budget.count - 1)
        #expect(try await !tells(fixture, Array("c1".utf8)))
        try await fixture.end()
    }

    /// Repeats by owners cost other callers nothing.
    @Test func repeatedCreatesAreFree() async throws {
        let fixture = try await BrokerFixture()
        _ = try await fixture.create("123456")
        for _ in 0..<20 { #expect(try await !fixture.create("123456").isNew) }
        let budget = fixture.broker.policies.rooms.shortCreations
        #expect(try await told(fixture, of: budget.count) == budget.count - 1)
        try await fixture.end()
    }

    // MARK: Chances

    /// Of at least one success.
    static func chance(_ each: Double, tries: Int) -> Double {
        var none = 1.0
        for _ in 0..<tries { none *= 1 - each }
        return 1 - none
    }

    /// How many successes of `count` there are, but for a chance of `failing` on either side.
    static func range(of count: Int, chance: Double, failing: Double) -> ClosedRange<Int> {
        var each = [(0..<count).reduce(1.0) { product, _ in product * (1 - chance) }]
        for number in 0..<count {
            each.append(each[number] * Double(count - number) / Double(number + 1) * chance / (1 - chance))
        }
        var (low, below) = (0, each[0])
        while below < failing {
            low += 1
            below += each[low]
        }
        var (high, above) = (count, each[count])
        while above < failing {
            high -= 1
            above += each[high]
        }
        return low...high
    }
}
