import HTTP1
import HTTPServer

/// The control listener: `GET` and `DELETE /pushes`, `GET` and `PUT /faults`. See docs/simulator.md.
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
        case ("/faults", .put): await plan(request.withBody { body in body.indices.map { body[$0] } })
        case ("/faults", _): Self.methodNotAllowed("GET, PUT")
        default: Self.problem(404, "not_found", "The control listener has /pushes and /faults.")
        }
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
        var response = problem(405, "method_not_allowed", "This path doesn't have that method. Use \(allowed).")
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
