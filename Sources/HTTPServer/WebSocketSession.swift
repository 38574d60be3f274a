import Shares
import WebSocket

/// A connection after its upgrade, and what outlives it: messages the handler has yet to see.
final class WebSocketSession {
    let handle: WebSocketHandle
    let machine: WebSocketMachine
    /// Of the upgrade.
    let owners: Owners
    /// A task is calling the handler.
    var isDelivering = false
    var isGone = false
    /// Until the handler says that the peer has joined.
    var unjoined: Charge?
    /// `machine.pongCount` when the last ping was sent.
    var pongCount = 0

    init(handle: WebSocketHandle, owners: Owners, maximumBytes: Int) {
        self.handle = handle
        self.owners = owners
        machine = WebSocketMachine(role: .server, maximumBytes: maximumBytes)
    }
}
