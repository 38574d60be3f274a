import Broker
import Sealing
import Synchronization
import Vocabulary

/// Users with registered phones that calls ring, and what they must be able to rely on. See `DeploymentLife`, which has the rooms.
final class DeploymentPhones: Sendable {
    private struct Phone {
        let user: Int
        /// True if it was acknowledged that it is registered.
        var isSure = false
        /// True once Apple has refused its token, or its deletion has begun.
        var isOver = false
        /// When its deletion was acknowledged.
        var deletedAt: UInt64?
        var ref: Ref?
        /// Unix ms.
        var expires: UInt64 = 0
    }

    private struct State {
        var phones: [[UInt8]: Phone] = [:]
        /// When Apple last saw a push for a token.
        var seen: [[UInt8]: UInt64] = [:]
        /// The ids of the pushes to a token, and how many calls there were to a user. A call rings a phone once.
        var ids: [[UInt8]: Set<String>] = [:]
        var calls: [Int: Int] = [:]
        /// Users with a call that has no answer yet.
        var busy: Set<Int> = []
    }

    private let world: DeploymentWorld
    private let life: DeploymentLife
    private let state = Mutex(State())
    private var time: SimulatedTime { world.time }
    private var chance: Chance { world.chance }

    private static let users = 3

    init(_ world: DeploymentWorld, _ life: DeploymentLife) { (self.world, self.life) = (world, life) }

    private static func name(_ user: Int) -> [UInt8] { Array("user-\(user)".utf8) }
    private static func principal(_ user: Int) -> Principal { Principal(user: name(user), isBackEnd: false, expiresMs: .max) }

    /// A user or a caller does something, at a random node.
    func act() {
        guard let run = life.someRun() else { return }
        let user = Int(chance.upTo(UInt64(Self.users)))
        switch chance.upTo(10) {
        case ..<3: register(user, run)
        case 3: delete(user, run)
        default: ring(user, run)
        }
    }

    /// Deletes all phones. Call it when nothing is under way.
    func deleteAll() {
        guard let run = life.readyRun else { return }
        for user in 0..<Self.users {
            ask("delete all phones", user, run) { calls in
                try await calls.delete(Self.principal(user), user: Self.name(user), token: nil)
            } done: { [world] deleted in
                if deleted == nil { world.story.fail("the phones of user \(user) can't be deleted") }
            }
        }
    }

    // MARK: Calls

    /// Calls a process, unless another call of this user has no answer yet.
    /// - Parameter done: gets nil if there is no answer. Then it may be done nevertheless.
    private func ask<Answer: Sendable>(
        _ what: String, _ user: Int, _ run: NodeRun, _ body: @escaping @Sendable (Calls) async throws -> Answer,
        done: @escaping @Sendable (Answer?) -> Void
    ) {
        guard state.withLock({ $0.busy.insert(user).inserted }) else { return }
        life.call(run, nil) { _ in
            guard let calls = run.parts?.calls else { throw BrokerError.shuttingDown }
            return try await body(calls)
        } done: { [self] result in
            state.withLock { _ = $0.busy.remove(user) }
            switch result {
            case .success(let answer): done(answer)
            case .failure(let error):
                if !life.isRetryable(error) { world.story.fail("\(what) of user \(user) at \(run.node.name): \(error)") }
                done(nil)
            }
        }
    }

    /// The tokens of a user that no deletion and no refusal has touched.
    private func tokens(of user: Int) -> [[UInt8]] {
        state.withLock { $0.phones.filter { $0.value.user == user && !$0.value.isOver }.map(\.key) }
            .sorted { $0.lexicographicallyPrecedes($1) }
    }

    /// Returns the tokens of phones that a call must ring.
    private func sure(_ tokens: [[UInt8]]) -> [[UInt8]] {
        let now = time.now
        return state.withLock { state in
            tokens.filter { state.phones[$0].map { $0.isSure && !$0.isOver && now + 300_000 < $0.expires } == true }
        }
    }

    private func change(_ token: [UInt8], _ body: (inout Phone) -> Void) {
        state.withLock { state in
            if var phone = state.phones[token] {
                body(&phone)
                state.phones[token] = phone
            }
        }
    }

    private func register(_ user: Int, _ run: NodeRun) {
        let own = tokens(of: user)
        // A node that was not started again since takes no subscriptions.
        let some = own.filter { run.takesSubscriptions || !DeploymentLife.isSubscription($0) }
        let isAgain = !some.isEmpty && (own.count >= 3 || chance.upTo(3) == 0)
        let token = isAgain ? chance.pick(some) : life.newToken(run)
        state.withLock { state in if !isAgain { state.phones[token] = Phone(user: user) } }
        ask("a registration", user, run) { [life] calls in
            try await calls.register(Self.principal(user), user: Self.name(user), address: try life.address(of: token))
        } done: { [self] made in
            guard let made else { return }
            life.count("register")
            var isNew = false
            change(token) { phone in
                isNew = phone.ref != made.ref
                (phone.isSure, phone.ref, phone.expires) = (true, made.ref, made.expires)
            }
            // A renewal of a recent registration keeps its ref.
            if isNew { life.facts.sealed(made.ref) }
        }
    }

    private func delete(_ user: Int, _ run: NodeRun) {
        let own = tokens(of: user)
        guard !own.isEmpty else { return }
        let one = chance.upTo(3) == 0 ? nil : chance.pick(own)
        let gone = one.map { [$0] } ?? own
        for token in gone { change(token) { $0.isOver = true } }
        ask("a deletion", user, run) { [life] calls in
            try await calls.delete(
                Self.principal(user), user: Self.name(user),
                token: try one.map { try life.address(of: $0).device })
        } done: { [self] deleted in
            guard deleted != nil else { return }
            life.count("delete")
            let now = time.now
            for token in gone { change(token) { $0.deletedAt = now } }
        }
    }

    private func ring(_ user: Int, _ run: NodeRun) {
        let (known, start) = (sure(tokens(of: user)), time.now)
        state.withLock { $0.calls[user, default: 0] += 1 }
        let session = Array("call-\(life.facts.nextNumber())".utf8)
        ring(user, session, run) { [self] receipt in
            if receipt.isRepeated { world.story.fail("a new call to user \(user) counts as a repeated one") }
            let left = sure(known)
            if receipt.rang + receipt.throttled < left.count {
                world.story.fail("a call to user \(user) at \(run.node.name) rings \(receipt.rang) of \(left.count) phones")
            }
            for _ in 0..<receipt.rang { life.facts.queued() }
            if receipt.throttled == 0 {
                time.after(3_000) { [self] in
                    guard world.story.isCalm(from: start - 40_000, to: time.now) else { return }
                    let isMissing = sure(left).contains { token in state.withLock { $0.seen[token] ?? 0 < start } }
                    if isMissing { world.story.fail("a call rang user \(user), and a phone got no push in three seconds") }
                }
            }
            if receipt.rang > 0, chance.upTo(3) == 0 { time.after(chance.upTo(60_000)) { [self] in ringAgain(user, session) } }
        }
    }

    /// The same call is reported again, also to another node.
    private func ringAgain(_ user: Int, _ session: [UInt8]) {
        guard let run = life.someRun() else { return }
        ring(user, session, run) { [world] receipt in
            if receipt.rang > 0 { world.story.fail("a call to user \(user) rang twice") }
        }
    }

    private func ring(
        _ user: Int, _ session: [UInt8], _ run: NodeRun, done: @escaping @Sendable (CallReceipt) -> Void
    ) {
        let call = CallInvitation(
            session: session, caller: Self.name((user + 1) % Self.users), receiver: Self.name(user), media: .audio)
        ask("a call", user, run) {
            try await $0.ring(call)
        } done: { [self] receipt in
            guard let receipt else { return }
            life.count("ring")
            done(receipt)
        }
    }

    // MARK: Pushes

    /// A service has seen a push.
    /// - Returns: false if it is not for a user's phone.
    func saw(_ sighting: SimulatedServices.Sighting, mayPurge: Bool) -> Bool {
        let now = time.now
        let phone = state.withLock { state in
            state.seen[sighting.token] = now
            // The answer purges the token.
            if mayPurge { state.phones[sighting.token]?.isOver = true }
            if state.phones[sighting.token] != nil { state.ids[sighting.token, default: []].insert(sighting.apnsID) }
            return state.phones[sighting.token]
        }
        guard let phone else { return false }
        let (rung, calls) = state.withLock { ($0.ids[sighting.token]?.count ?? 0, $0.calls[phone.user] ?? 0) }
        if rung > calls { world.story.fail("a phone of user \(phone.user) got \(rung) pushes for \(calls) calls") }
        life.count("ringing push")
        if let deleted = phone.deletedAt, deleted + DeploymentLife.newsMs < now, world.story.isCalm(from: now - 40_000, to: now) {
            world.story.fail("a phone of user \(phone.user) rings \(now - deleted) ms after its deletion was acknowledged")
        }
        return true
    }
}
