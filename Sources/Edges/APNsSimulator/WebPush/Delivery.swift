import TLS

/// A request that is to be delivered, of either face.
enum Delivery {
    /// - request: nil if the request is incomplete. Then it isn't stored.
    case apns(PushRequest?, id: [UInt8])
    /// - message: nil if the request is incomplete. Then it isn't stored.
    case webPush(PushServiceDialect, WebPushMessage?)
}

extension PushService {
    /// Stores a push without an answer.
    func keep(_ delivery: Delivery) {
        switch delivery {
        case .apns(let request?, let id): keep(request, id: id, at: wallMs())
        case .webPush(_, let message?): _ = accept(message)
        case .apns(nil, _), .webPush(_, nil): break
        }
    }

    /// Delivers a message.
    /// - Returns: the answer to its sender.
    func accept(_ message: WebPushMessage) -> Answer {
        let (id, now) = (String(decoding: makeUUID(), as: UTF8.self), wallMs())
        webPush.accept(message, id: id, nowMs: now)
        counts.accepted += 1
        return message.subscription.dialect.answer(to: message, id: id, nowMs: now)
    }

    /// Returns the answer of a fault. Returns nil if the fault determines none.
    func answer(of fault: Fault, to delivery: Delivery) -> Answer? {
        switch delivery {
        case .apns(_, let id): Answer(fault, id: id, now: wallMs())
        case .webPush(let dialect, _):
            if let problem = fault.problem {
                dialect.answer(to: problem, "a planned fault", nowMs: wallMs())
            } else {
                Answer(fault, id: nil, now: wallMs())
            }
        }
    }

    /// `[...]`: the last accepted pushes of both faces, oldest first.
    var pushesJSON: [UInt8] {
        var out: [UInt8] = [UInt8(ascii: "[")]
        func separate() { if out.count > 1 { out.append(UInt8(ascii: ",")) } }
        var messages = webPush.log.pushes[...]
        for push in log.pushes {
            while let message = messages.first, message.at < push.at {
                separate()
                message.append(to: &out)
                messages.removeFirst()
            }
            separate()
            push.append(to: &out)
        }
        for message in messages {
            separate()
            message.append(to: &out)
        }
        out.append(UInt8(ascii: "]"))
        return out
    }
}

/// Checks requests to the Web Push face when they are complete.
extension SimulatorConnection {
    func judge(_ request: WebPushRequest, _ stream: Int32) {
        guard stream <= lastStream else { return }
        guard let (dialect, id) = request.target else { return refuse(request, stream) }
        let now = service.wallMs()
        let message: WebPushMessage
        do throws(PushRejection) {
            message = try service.webPush.check(request, nowMs: now)
        } catch {
            service.counts.refused[error.problem.rawValue, default: 0] += 1
            return send(dialect.answer(to: error.problem, error.detail, nowMs: now), stream)
        }
        guard let fault = service.faults.take(for: id, dialect) else { return send(service.accept(message), stream) }
        after(fault.delayMs) { connection in connection.carryOut(fault, .webPush(dialect, message), stream) }
    }

    /// Answers a path without a dialect, which is no push service.
    private func refuse(_ request: WebPushRequest, _ stream: Int32) {
        service.counts.refused[PushProblem.notFound.rawValue, default: 0] += 1
        let text = "Web Push endpoints are /wp/<dialect>/<id>. APNs is served over HTTP/2 only.\n"
        send(Answer(status: 404, more: [("content-type", "text/plain; charset=utf-8")], body: Array(text.utf8)), stream)
    }

    /// Returns whether a fault answers the request before it is checked.
    func answersEarly(_ request: WebPushRequest, _ stream: Int32) -> Bool {
        guard stream <= lastStream, let (dialect, id) = request.target,
            let fault = service.faults.take(for: id, dialect, at: .headers)
        else { return false }
        after(fault.delayMs) { connection in connection.carryOut(fault, .webPush(dialect, nil), stream) }
        return true
    }
}
