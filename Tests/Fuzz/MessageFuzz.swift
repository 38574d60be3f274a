import Broker
import FoundationEssentials
import HTTP1
import HTTPServer
import WebSocket

@testable import API

/// Input of apps with accounts: WebSocket messages and call webhooks. Accepted values equal Foundation's. Dropped fields are reported by plain names
/// only.
enum MessageFuzz {
    static func run(_ input: [UInt8]) {
        let read = try? JSONDecoder().decode([String: FoundationValue].self, from: Data(input))
        if read == nil, FoundationValue.mayRefuse(input) { return }
        // Empty if Foundation refuses it, so that nothing of ours equals it.
        let theirs = read ?? [:]
        let request = HTTPRequest(method: .post, target: "/", body: input)
        if let body = try? RequestBody(of: request), let call = try? body.fields({ CallBody($0) }) {
            check(call, body.dropped, theirs)
        }
        if let body = try? RequestBody(of: request), let message = try? body.fields({ SessionRequest($0) }) {
            check(message, theirs)
        }
        // The server accepts only messages in valid UTF-8.
        guard let text = String(validating: input, as: UTF8.self) else { return }
        if let name = SessionRequest.name(of: TextMessage(text)) { require(names.contains(name), "a name of ours") }
    }

    private static let names = Set(EventBody.types + ["approval_response", "ping", "auth", "claim"])

    private static func check(_ call: CallBody, _ dropped: [String], _ theirs: [String: FoundationValue]) {
        guard case .call(let invitation) = call else { return }
        require(dropped == dropped.sorted() && dropped.allSatisfy(isPlain), "plain names, sorted")
        let data = theirs["data"]
        require(theirs["trigger"]?.text == "call_initiated", "a call begins")
        require(data?["receiverType"]?.text == "user", "it is to one user")
        require(data?["type"]?.text == invitation.media.rawValue, "the same kind of call")
        require(data?["receiver"]?["uid"]?.bytes == invitation.receiver, "the same receiver")
        require(data?["initiator"]?["uid"]?.bytes == invitation.caller, "the same caller")
        require((data?["sessionId"]?.bytes ?? data?["id"]?.bytes) == invitation.session, "the same session")
        for name in [invitation.receiver, invitation.caller, invitation.session] {
            require((1...128).contains(name.count), "a name")
        }
    }

    private static func check(_ request: SessionRequest, _ theirs: [String: FoundationValue]) {
        // A message that only claims may lack a type.
        let type = if case .claimOnly = request.kind { theirs["type"]?.text ?? "claim" } else { theirs["type"]?.text }
        require(type == request.type && theirs["userId"]?.bytes == request.user, "the same type and user")
        if let claim = request.claim {
            require(theirs["deviceId"]?.bytes == claim.device && theirs["sessionId"]?.bytes == claim.session, "the same claim")
        }
        switch request.kind {
        case .answer(_, let approved, _):
            if case .bool(approved)? = theirs["approved"] {} else { fatalError("the same answer") }
        case .event(let event, let session, let name, let dropped):
            require(theirs["sessionId"]?.bytes == session && theirs["eventId"]?.bytes == name, "the same session and event")
            require(dropped == dropped.sorted() && dropped.allSatisfy(isPlain), "plain names, sorted")
            if let ownID = event.ownID { require((1...128).contains(ownID.count), "a name of its own") }
            if case .progress(let progress) = event.event, let completed = progress.completed, let total = progress.total,
                total >= 0
            {
                require(completed <= total, "no more done than there is")
            }
        case .ping, .claimOnly: break
        }
    }

    private static func isPlain(_ path: String) -> Bool {
        path.utf8.allSatisfy { 0x61...0x7a ~= $0 | 0x20 || 0x30...0x39 ~= $0 || [0x2a, 0x2e, 0x5f].contains($0) }
    }
}

extension FoundationValue {
    fileprivate var text: String? { if case .string(let text) = self { text } else { nil } }
    fileprivate var bytes: [UInt8]? { text.map { Array($0.utf8) } }
    fileprivate subscript(_ name: String) -> FoundationValue? {
        if case .object(let members) = self { members[name] } else { nil }
    }
}
