import Testing

@testable import Storage

/// A node's wall clock counts only while the database's confirms it.
@Suite struct AgreedClockTests {
    private let wall = TestClock()
    private let boot = TestClock(5_000)
    private let begin: UInt64 = 1_700_000_000_000

    private func pass(_ ms: UInt64) {
        wall.advance(ms)
        boot.advance(ms)
    }

    private func clock() -> AgreedClock { AgreedClock(wall: { [wall] in wall.now }, boot: { [boot] in boot.now }) }

    @Test func theWallClockIsConfirmedWithinAMinute() throws {
        let clock = clock()
        for difference: Int64 in [-60_000, -5_000, 0, 5_000, 60_000] {
            let database = UInt64(Int64(begin) + difference)
            let comparison = try clock.compare(database)
            #expect(comparison.isConfirmed && comparison.clock == (abs(difference) > 5_000 ? begin : database))
        }
        #expect(clock.nowMs == begin)
    }

    /// Nobody knows which of them is wrong.
    @Test func clocksThatNeverAgreedGiveNoTime() {
        let clock = clock()
        for database in [begin - 60_001, begin + 60_001, 0] {
            #expect(throws: StoreError.wrongClock) { _ = try clock.compare(database) }
        }
    }

    @Test func aStepOfTheWallClockChangesNothing() throws {
        let clock = clock()
        _ = try clock.compare(begin)
        for step: Int64 in [3_600_000, -7_200_000] {
            wall.step(step)
            pass(1_000)
        }
        let comparison = try clock.compare(begin + 2_000)
        #expect(!comparison.isConfirmed && comparison.clock == begin + 2_000 && clock.nowMs == begin + 2_000)
    }

    @Test func aStepOfTheDatabaseChangesNothing() throws {
        let clock = clock()
        _ = try clock.compare(begin)
        pass(1_000)
        let comparison = try clock.compare(begin + 90_000_000)
        #expect(!comparison.isConfirmed && comparison.clock == begin + 1_000)
    }

    /// Steps of one clock, back and forth, would otherwise put two minutes between a push and its outcome.
    @Test func smallStepsOfOneClockChangeNothing() throws {
        let clock = clock()
        _ = try clock.compare(begin)
        for step: Int64 in [-59_000, 59_000] {
            #expect(try clock.compare(UInt64(Int64(begin) + step)).clock == begin)
            wall.step(step)
            let comparison = try clock.compare(begin)
            #expect(comparison.isConfirmed && comparison.clock == begin && clock.nowMs == begin)
            wall.step(-step)
        }
    }

    /// Somebody has set both right.
    @Test func aStepOfBothIsFollowed() throws {
        let clock = clock()
        _ = try clock.compare(begin)
        wall.step(-3_600_000)
        #expect(clock.nowMs == begin)
        let comparison = try clock.compare(begin - 3_600_000)
        #expect(comparison.isConfirmed && comparison.clock == begin - 3_600_000 && clock.nowMs == begin - 3_600_000)
    }
}
