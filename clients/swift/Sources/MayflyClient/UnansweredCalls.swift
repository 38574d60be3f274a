/// The client ids of creates and accepts whose answers may be lost. The app's next call with the same code must have the same id.
actor UnansweredCalls {
    private struct Call: Hashable {
        let side: Room.Side
        let code: JoinCode
    }

    /// How long a broker repeats its answer.
    private static let life: Duration = .seconds(120)
    private var clients: [Call: (client: Secret, until: ContinuousClock.Instant)] = [:]

    /// Returns the id of an earlier call without an answer, or a new one.
    func client(for side: Room.Side, _ code: JoinCode) -> Secret {
        let now = ContinuousClock.now
        clients = clients.filter { $0.value.until > now }
        let call = Call(side: side, code: code)
        if let known = clients[call] { return known.client }
        let client = Secret.random(bytes: 16)
        clients[call] = (client, now + Self.life)
        return client
    }

    func remove(_ side: Room.Side, _ code: JoinCode) { clients[Call(side: side, code: code)] = nil }
}
