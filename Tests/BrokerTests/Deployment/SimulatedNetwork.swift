import Broker
import EventLoop
import Ledger
import Synchronization

/// The network between the machines of a deployment. It carries requests between two machines, and the database's notifications to all of them.
final class SimulatedNetwork: Sendable {
    private struct Way: Hashable {
        let from: Int
        let to: Int
    }

    /// The loss, repetition (both in percent) and delay of messages.
    struct Weather {
        var lost: UInt64 = 0
        var repeated: UInt64 = 0
        /// The longest delay, ms. Messages with a delay of 1 ms keep their order.
        var delayMs: UInt64 = 1
    }

    private struct State {
        var cut: Set<Way> = []
        var weather = Weather()
        /// Machines that get no messages.
        var deaf: Set<Int> = []
        var processes: [Int: NodeRun] = [:]
    }

    let time: SimulatedTime
    private let database: SimulatedDatabase
    private let chance: Chance
    private let state = Mutex(State())

    init(_ time: SimulatedTime, _ database: SimulatedDatabase, _ chance: Chance) {
        (self.time, self.database, self.chance) = (time, database, chance)
    }

    /// The process listens at its machine's address from now on.
    func open(_ process: NodeRun) { state.withLock { $0.processes[process.machine.number] = process } }
    func close(_ process: NodeRun) {
        state.withLock { state in
            if state.processes[process.machine.number] === process { state.processes[process.machine.number] = nil }
        }
    }
    private func process(at machine: Int) -> NodeRun? { state.withLock { $0.processes[machine] } }

    // MARK: Faults

    func cut(from: Int, to: Int) { state.withLock { _ = $0.cut.insert(Way(from: from, to: to)) } }
    func join(from: Int, to: Int) { state.withLock { _ = $0.cut.remove(Way(from: from, to: to)) } }
    func set(deaf: Bool, at machine: Int) {
        state.withLock { state in
            if deaf { state.deaf.insert(machine) } else { state.deaf.remove(machine) }
        }
    }
    private func isDeaf(_ machine: Int) -> Bool { state.withLock { $0.deaf.contains(machine) } }
    func set(_ weather: Weather) { state.withLock { $0.weather = weather } }
    private func isCut(_ from: Int, _ to: Int) -> Bool { state.withLock { $0.cut.contains(Way(from: from, to: to)) } }
    private var weather: Weather { state.withLock(\.weather) }

    private func delay() -> UInt64 { 1 + chance.upTo(weather.delayMs) }

    // MARK: Messages of the database

    /// Carries a message to all processes that listen, also to the sender's.
    func notify(_ text: String, from machine: Int) {
        guard database.condition(at: machine) == .well else { return }
        for number in state.withLock({ $0.processes.keys.sorted() }) {
            if chance.upTo(100) < weather.lost { continue }
            let copies = chance.upTo(100) < weather.repeated ? 2 : 1
            for _ in 0..<copies {
                time.after(delay()) { [self] in
                    guard database.condition(at: number) == .well, !isDeaf(number), let process = process(at: number) else {
                        return
                    }
                    process.machine.deliver {
                        if let parts = process.parts { parts.neighbors.receive(text, for: parts.receivers) }
                    }
                }
            }
        }
    }

    // MARK: Requests

    /// Carries a request to a machine and the answer back.
    /// - Parameters:
    ///   - answer: runs in the process at the other machine.
    ///   - end: called once, in the process that asks.
    func ask<Answer: Sendable>(
        _ machine: Int, from asker: SimulatedMachine, timeoutMs: UInt64,
        _ answer: @escaping @Sendable (NodeRun) async throws(LinkFailure) -> Answer,
        _ end: @escaping @Sendable (Result<Answer, LinkFailure>) -> Void
    ) {
        time.after(timeoutMs) { asker.deliver { end(.failure(LinkFailure("it did not answer in time"))) } }
        time.after(delay()) { [self] in
            if isCut(asker.number, machine) { return }
            guard let process = process(at: machine) else {
                return reply(.failure(LinkFailure("it refuses connections")), from: machine, to: asker, end)
            }
            process.machine.deliver { [self] in
                _ = Task(executorPreference: process.loop) {
                    let result: Result<Answer, LinkFailure>
                    do throws(LinkFailure) { result = .success(try await answer(process)) } catch { result = .failure(error) }
                    // A process that has been killed answers nothing.
                    if self.process(at: machine) === process { self.reply(result, from: machine, to: asker, end) }
                }
            }
        }
    }

    private func reply<Answer: Sendable>(
        _ result: Result<Answer, LinkFailure>, from machine: Int, to asker: SimulatedMachine,
        _ end: @escaping @Sendable (Result<Answer, LinkFailure>) -> Void
    ) {
        time.after(delay()) { [self] in
            if !isCut(machine, asker.number) { asker.deliver { end(result) } }
        }
    }
}

/// How one process reaches the others.
final class SimulatedLink: NodeLink {
    private let machine: SimulatedMachine
    private let network: SimulatedNetwork
    /// Requests that have no answer yet, by number. Each closure ends one.
    private let open = Mutex<(count: Int, requests: [Int: @Sendable () -> Void])>((0, [:]))

    init(_ machine: SimulatedMachine, _ network: SimulatedNetwork) { (self.machine, self.network) = (machine, network) }

    static func address(_ machine: Int) -> String { "10.0.0.\(machine + 1):8789" }
    private static func machine(_ address: String) -> Int {
        Int(address.dropFirst("10.0.0.".count).prefix { $0 != ":" }).map { $0 - 1 } ?? -1
    }

    func keys(of address: String, _ request: KeyRequest) async throws(LinkFailure) -> KeyAnswer {
        try await ask(address, timeoutMs: 15_000) { process throws(LinkFailure) in
            guard let answer = await process.offers?.answer(request) else { throw LinkFailure("HTTP status 400") }
            return answer
        }
    }

    func log(of address: String) -> any LogSource {
        FunctionSource { [self] path in
            try await ask(address, timeoutMs: 30_000) { process throws(LinkFailure) in
                do { return try process.ledger.read(path) } catch { throw LinkFailure("HTTP status 503") }
            }
        }
    }

    private func ask<Answer: Sendable>(
        _ address: String, timeoutMs: UInt64, _ answer: @escaping @Sendable (NodeRun) async throws(LinkFailure) -> Answer
    ) async throws(LinkFailure) -> Answer {
        let result: Result<Answer, LinkFailure> = await withCheckedContinuation { continuation in
            let once = Once(continuation)
            let number = open.withLock { open in
                open.count += 1
                let number = open.count
                open.requests[number] = { once.end(.failure(LinkFailure("this process ends"))) }
                return number
            }
            network.ask(Self.machine(address), from: machine, timeoutMs: timeoutMs, answer) { [self] result in
                open.withLock { _ = $0.requests.removeValue(forKey: number) }
                once.end(result)
            }
        }
        return try result.get()
    }

    /// Ends all requests.
    func close() {
        let requests = open.withLock { open in
            defer { open.requests = [:] }
            return open.requests
        }
        for number in requests.keys.sorted() { requests[number]?() }
    }

    private final class Once<Answer: Sendable>: Sendable {
        private let continuation: Mutex<CheckedContinuation<Result<Answer, LinkFailure>, Never>?>

        init(_ continuation: CheckedContinuation<Result<Answer, LinkFailure>, Never>) { self.continuation = Mutex(continuation) }

        func end(_ result: Result<Answer, LinkFailure>) { continuation.withLock { $0.take() }?.resume(returning: result) }
    }
}
