// A back end that reports events, asks for approvals and rings phones, with Foundation alone. On Linux, which has no CryptoKit, it is compiled
// together with the Swift client's SHA256.swift. A server that has swift-crypto uses the same code by `import Crypto`.

import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif
#if canImport(CryptoKit)
    import CryptoKit
#endif

@main struct BackEnd {
    typealias Object = [String: Any]
    struct Failure: Error { let answer: String }

    let broker = ProcessInfo.processInfo.environment["BROKER"] ?? ""

    func report(_ user: String, _ session: String, _ type: String, data: Object = [:]) async throws -> Object {
        // The id makes a repeat harmless.
        let event: Object = ["userId": user, "type": type, "data": data, "eventId": UUID().uuidString]
        let name = session.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
        return try await send("POST", "/api/sessions/\(name)/events", body: encoded(event))
    }

    /// Returns `approved`, `denied`, `timed_out` or `withdrawn`, after a minute at most.
    func ask(_ user: String, _ session: String) async throws -> String {
        let asked = try await report(user, session, "approval_request")
        while true {
            let answer = try await send("GET", "/api/approval/\(asked["requestId"] ?? "")")
            if let status = answer["status"] as? String, status != "pending" { return status }
            try await Task.sleep(for: .seconds(1))
        }
    }

    /// Returns how many phones ring.
    func ring(_ caller: String, _ receiver: String, _ call: String, type: String = "audio") async throws -> Int {
        let data: Object = [
            "sessionId": call, "type": type, "initiator": ["uid": caller], "receiver": ["uid": receiver], "receiverType": "user",
        ]
        let body = try encoded(["trigger": "call_initiated", "data": data])
        let signature = try code("WEBHOOK_SECRET", body).map { String(format: "%02x", $0) }.joined()
        let answer = try await send("POST", "/webhooks/call", body: body, headers: ["X-CometChat-Signature": signature])
        return answer["rang"] as? Int ?? 0
    }

    /// Lasts five minutes. The secret is that of the app's login, an HS256 key that the broker has, too.
    func jwt() throws -> String {
        let now = Int(Date().timeIntervalSince1970)
        let claims: Object = ["sub": "back-end", "scope": "broker.notify", "iat": now, "exp": now + 300]
        let text = try [encoded(["alg": "HS256", "typ": "JWT"]), encoded(claims)].map(base64URL).joined(separator: ".")
        return try "\(text).\(base64URL(code("LOGIN_SECRET", Data(text.utf8))))"
    }

    /// Repeats what the broker had no time for. Other errors are thrown.
    func send(_ method: String, _ path: String, body: Data? = nil, headers: [String: String]? = nil) async throws -> Object {
        guard let url = URL(string: broker + path) else { throw Failure(answer: "BROKER is not a URL") }
        var request = URLRequest(url: url, timeoutInterval: 10)
        (request.httpMethod, request.httpBody) = (method, body)
        for tries in 1... {
            request.allHTTPHeaderFields = try headers ?? ["Authorization": "Bearer \(jwt())"]
            let (data, response) = try await URLSession.shared.data(for: request)
            guard let response = response as? HTTPURLResponse else { break }
            if response.statusCode < 300 { return try JSONSerialization.jsonObject(with: data) as? Object ?? [:] }
            guard [429, 503].contains(response.statusCode), tries < 3 else {
                throw Failure(answer: String(decoding: data, as: UTF8.self))
            }
            try await Task.sleep(for: .seconds(Int(response.value(forHTTPHeaderField: "Retry-After") ?? "") ?? 1))
        }
        throw Failure(answer: "No HTTP")
    }

    func encoded(_ object: Object) throws -> Data { try JSONSerialization.data(withJSONObject: object) }

    func base64URL(_ data: Data) -> String {
        data.base64EncodedString().replacingOccurrences(of: "+", with: "-").replacingOccurrences(of: "/", with: "_")
            .replacingOccurrences(of: "=", with: "")
    }

    func code(_ variable: String, _ message: Data) throws -> Data {
        let path = ProcessInfo.processInfo.environment[variable] ?? ""
        let secret = try String(contentsOfFile: path, encoding: .utf8).trimmingCharacters(in: .whitespacesAndNewlines)
        #if canImport(CryptoKit)
            return Data(HMAC<SHA256>.authenticationCode(for: message, using: SymmetricKey(data: Data(secret.utf8))))
        #else
            return Data(SHA256.authenticationCode(for: [UInt8](message), key: [UInt8](secret.utf8)))
        #endif
    }

    static func main() async {
        do {
            print(try await run(CommandLine.arguments.dropFirst() + ["", "", "", ""]))
        } catch {
            FileHandle.standardError.write(Data("\(error)\n".utf8))
            exit(1)
        }
    }

    static func run(_ words: ArraySlice<String>) async throws -> String {
        let (backEnd, first, second, third) = (BackEnd(), words[2], words[3], words[4])
        switch words[1] {
        case "report":
            let answer = try await backEnd.report(first, second, third)
            return "\(answer["pushes"] ?? 0)"
        case "ask": return try await backEnd.ask(first, second)
        case "ring":
            let phones = try await backEnd.ring(first, second, third)
            return "\(phones)"
        default: throw Failure(answer: "backend report USER SESSION TYPE | ask USER SESSION | ring CALLER RECEIVER CALL")
        }
    }
}
