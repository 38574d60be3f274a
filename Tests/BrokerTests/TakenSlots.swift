import Broker
import Testing

@testable import Sealing

/// Slots that a test takes from the process's arena, so that the broker finds none. Tests run one after the other, or others would fail.
final class TakenSlots {
    private struct Held: ~Copyable { let slot: Slot }
    private final class Box {
        let held: Held
        init(_ slot: consuming Slot) { held = Held(slot: slot) }
    }

    private var taken: [Box] = []

    /// - Parameter reserve: whether to take the slots that are reserved for acknowledged pushes as well.
    init(reserve: Bool = false) throws {
        do {
            while true { taken.append(Box(try Arena.shared.take(for: reserve ? .acknowledgedPush : .anything))) }
        } catch {
            // The test's own machine may lock less than the whole arena.
            guard case .outOf = error else { throw error }
        }
    }

    func giveBack(_ count: Int) { taken.removeLast(min(count, taken.count)) }
    func giveBackAll() { taken = [] }

    /// Makes a call with no free slot, then with one, and so on until it succeeds: a shortage at whatever step is a refusal, and keeps nothing.
    static func untilItFits<Value>(
        isolation: isolated (any Actor)? = #isolation, _ name: String, _ call: () async throws -> Value
    ) async throws -> Value {
        let taken = try TakenSlots()
        for free in 0..<64 {
            do {
                let value = try await call()
                #expect(free > 0, "\(name) needed no slot")
                return value
            } catch let error as BrokerError {
                guard case .overloaded = error else { throw error }
                #expect(error.status == 503 && error.retryAfter != nil)
            }
            taken.giveBack(1)
        }
        throw NeverFits()
    }

    private struct NeverFits: Error {}
}
