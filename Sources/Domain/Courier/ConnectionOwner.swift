/// Receives the state changes of a connection.
protocol ConnectionOwner: AnyObject {
    /// The peer's settings have arrived, so the connection accepts requests.
    func connectionIsReady(_ connection: PushConnection)
    /// Events were handled, so the connection may have room again.
    func connectionMayHaveRoom(_ connection: PushConnection)
    /// The connection will soon run out of stream ids.
    func connectionNeedsReplacement(_ connection: PushConnection)
    /// A PING checks whether the peer is alive, because a request may go unanswered.
    func connectionIsInDoubt(_ connection: PushConnection)
    /// The PING has gone unanswered for half of its time.
    func connectionIsDoubtful()
    /// The peer sent ENHANCE_YOUR_CALM.
    func connectionIsThrottled(_ connection: PushConnection)
    /// The connection accepts no more requests. Requests in flight continue.
    func connectionRetired(_ connection: PushConnection, _ cause: ConnectionEnd)
    func connectionEnded(_ connection: PushConnection, _ cause: ConnectionEnd)
}

/// Receives the results of the pushes on a connection.
protocol DeliveryOwner: AnyObject {
    func connection(_ connection: PushConnection, answered delivery: Delivery, _ answer: Answer, _ attempt: Attempt)
    /// The peer didn't process the push, so it can be retried at once.
    func refused(_ delivery: Delivery)
    /// The push was sent without a response. The peer may have accepted it.
    func lost(_ delivery: Delivery)
    /// A GOAWAY was received. If there are two, only the second may have a reason.
    func connection(_ connection: PushConnection, receivedGoAway goAway: GoAway)
}
