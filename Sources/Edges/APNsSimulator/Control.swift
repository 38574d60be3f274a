import HTTP1
import HTTPServer

/// The control listener: pushes, faults and Web Push subscriptions. See docs/simulator.md.
struct Control: HTTPHandler {
    let simulator: APNsSimulator

    func respond(to request: HTTPRequest) async -> HTTPResponse {
        guard request.namesLoopback else {
            return Self.problem(
                421, "foreign_host", "The control listener serves this machine only. Call it as localhost, 127.0.0.1 or [::1].")
        }
        return switch (request.path, request.method) {
        case ("/pushes", .get): HTTPResponse(status: 200, contentType: .json, body: await simulator.pushesJSON)
        case ("/pushes", .delete): await forget()
        case ("/pushes", _): Self.methodNotAllowed("GET, DELETE")
        case ("/faults", .get): HTTPResponse(status: 200, contentType: .json, body: await simulator.faults.json)
        case ("/faults", .put): await plan(request.withBody { [UInt8]($0) })
        case ("/faults", _): Self.methodNotAllowed("GET, PUT")
        case ("/subscriptions", .post): await subscribe(request.withBody { [UInt8]($0) })
        case ("/subscriptions", _): Self.methodNotAllowed("POST")
        case (let path, let method) where path.hasPrefix(Self.subscriptions):
            await answer(method, String(path.dropFirst(Self.subscriptions.count)), request.withBody { [UInt8]($0) })
        default: Self.problem(404, "not_found", "The control listener has /pushes, /faults and /subscriptions.")
        }
    }

    private static let subscriptions = "/subscriptions/"

    private func subscribe(_ body: [UInt8]) async -> HTTPResponse {
        do {
            let wanted = try SubscriptionRequest(json: body)
            return HTTPResponse(status: 201, contentType: .json, body: try await simulator.subscribe(wanted))
        } catch let error as WebPushFace.Malformed {
            return Self.problem(400, "bad_subscription", error.explanation)
        } catch {
            return Self.problem(500, "no_key", "No key could be made: \(error).")
        }
    }

    /// Answers a call about one subscription.
    private func answer(_ method: HTTP1.Method, _ id: String, _ body: [UInt8]) async -> HTTPResponse {
        var isKnown: Bool
        switch method {
        case .delete: isKnown = await simulator.unsubscribe(id)
        case .put:
            guard let text = JSON(parsing: body)?["state"]?.text, let state = WebPushSubscription.State(rawValue: text) else {
                return Self.problem(
                    400, "bad_state", #"The body must be {"state": ...} with online, offline, expired or unsubscribed."#)
            }
            isKnown = await simulator.set(state, of: id)
        default: return Self.methodNotAllowed("PUT, DELETE")
        }
        return isKnown ? HTTPResponse(status: 204) : Self.problem(404, "not_found", "There is no subscription with this id.")
    }

    private func forget() async -> HTTPResponse {
        await simulator.forgetPushes()
        return HTTPResponse(status: 204)
    }

    private func plan(_ body: [UInt8]) async -> HTTPResponse {
        do throws(FaultPlan.Malformed) {
            let plan = try FaultPlan(json: body)
            await simulator.setFaults(plan)
            return HTTPResponse(status: 200, contentType: .json, body: plan.json)
        } catch {
            return Self.problem(400, "bad_fault", error.explanation)
        }
    }

    private static func methodNotAllowed(_ allowed: String) -> HTTPResponse {
        var response = problem(405, "method_not_allowed", "This path doesn't support that method. Use \(allowed).")
        response.headers.append(.init("Allow", allowed))
        return response
    }

    /// RFC 9457.
    private static func problem(_ status: UInt16, _ code: String, _ detail: String) -> HTTPResponse {
        var body = Array(#"{"status":\#(status),"code":"\#(code)","detail":"#.utf8)
        JSON.append(detail, to: &body)
        body.append(UInt8(ascii: "}"))
        return HTTPResponse(status: status, contentType: .problem, body: body)
    }
}
