public import Broker
import HTTPServer
import JSON
import Synchronization
import Vocabulary
import WebSocket

/// The authenticated WebSockets of the companion. The companion sends news to them, `SessionSocketHandler` adds and removes them.
public final class SessionSocketTable: CompanionSockets {
    /// Limit per user, since each socket gets all of the user's news. Back ends have no limit: they are the operator's own.
    static let maxSockets = 64

    private let listeners = Mutex<[CompanionReceiver: Set<WebSocketHandle>]>([:])

    public init() {}

    /// Adds a socket that gets the news of a user or a back end.
    /// - Throws: `.tooManySockets` if the user has `maxSockets` sockets.
    func add(_ socket: WebSocketHandle, of listener: CompanionReceiver) throws {
        try listeners.withLock { listeners in
            // Refuse the new socket. If the oldest were closed instead, clients that reconnect would evict each other forever.
            guard listener.isBackEnd || listeners[listener, default: []].count < Self.maxSockets else {
                throw BrokerError.tooManySockets(limit: Self.maxSockets)
            }
            listeners[listener, default: []].insert(socket)
        }
    }

    func remove(_ socket: WebSocketHandle, of listener: CompanionReceiver) {
        listeners.withLock { listeners in
            listeners[listener]?.remove(socket)
            if listeners[listener]?.isEmpty == true { listeners[listener] = nil }
        }
    }

    // MARK: From the companion

    public func send(_ message: CompanionMessage, to receiver: CompanionReceiver) async {
        guard let sockets = listeners.withLock({ $0[receiver] }) else { return }
        let text = Self.text(message)
        for socket in sockets { await socket.send(text) }
    }

    private static func text(_ message: CompanionMessage) -> [UInt8] {
        func text(
            _ type: String, _ request: RequestID?, _ session: [UInt8], _ more: (inout JSONWriter) -> Void
        ) -> [UInt8] {
            SocketMessage.message(type) { json in
                if let request { json.add("requestId", request.base64url) }
                json.add("sessionId", String(decoding: session, as: UTF8.self))
                more(&json)
            }
        }
        return switch message {
        case .approvalResponse(let request, let session, let approved):
            text("approval_response", request, session) { $0.add("approved", approved) }
        case .approvalTimeout(let request, let session):
            text("approval_timeout", request, session) { $0.add("message", "Nobody answered in time") }
        case .approvalWithdrawn(let request, let session):
            // Clients of this type take an approval off the screen. There is no older word for a withdrawal.
            text("approval_timeout", request, session) { json in
                json.add("message", "The approval is no longer needed")
                json.add("withdrawn", true)
            }
        case .approvalRequest(let request, let session, let expires):
            text("approval_request", request, session) { $0.add("expiresAt", timeMs: expires) }
        case .progress(let progress, let session):
            text("progress_update", nil, session) { json in
                json.add("data") { data in
                    if let elapsed = progress.elapsedSeconds { data.add("elapsedSeconds", elapsed) }
                    guard let completed = progress.completed, let total = progress.total else { return }
                    data.add("todoProgress") { todo in
                        todo.add("completed", completed)
                        todo.add("total", total)
                    }
                }
            }
        case .state(let word, let before, let session):
            text("state_change", nil, session) { json in
                json.add("data") { data in
                    if let before { data.add("previousState", before) }
                    data.add("newState", word)
                }
            }
        }
    }
}
