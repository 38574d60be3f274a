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

    /// The broker never redirects, and the JWT is for nobody else.
    final class NoRedirects: NSObject, URLSessionTaskDelegate {
        func urlSession(
            _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
            newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
        ) { completionHandler(nil) }
    }
    static let session = URLSession(configuration: .ephemeral, delegate: NoRedirects(), delegateQueue: nil)

    let broker = ProcessInfo.processInfo.environment["BROKER"] ?? ""

    /// A repeat with the same `eventID` within twelve hours pushes nothing.
    func report(
        _ user: String, _ session: String, _ type: String, data: Object = [:], eventID: String = UUID().uuidString
    ) async throws -> Object {
        let event: Object = ["userId": user, "type": type, "data": data, "eventId": eventID]
        let name = session.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
        return try await send("POST", "/api/sessions/\(name)/events", body: encoded(event))
    }

    /// Returns `approved`, `denied`, `timed_out` or `withdrawn`. Takes a minute at most, or longer if it is told to retry later.
    func ask(_ user: String, _ session: String, eventID: String = UUID().uuidString) async throws -> String {
        let asked = try await report(user, session, "approval_request", eventID: eventID)
        while true {
            let answer = try await send("GET", "/api/approval/\(asked["requestId"] ?? "")")
            guard let status = answer["status"] as? String else { throw Failure(answer: "This is not the broker.") }
            if status != "pending" { return status }
            try await Task.sleep(for: .seconds(1))
        }
    }

    /// Returns how many phones ring: none if they have rung for this call.
    func ring(_ caller: String, _ receiver: String, _ call: String, type: String = "audio") async throws -> Int {
        let data: Object = [
            "sessionId": call, "type": type, "initiator": ["uid": caller], "receiver": ["uid": receiver], "receiverType": "user",
        ]
        let body = try encoded(["trigger": "call_initiated", "data": data])
        let signature = try hmacSHA256("WEBHOOK_SECRET", body).map { String(format: "%02x", $0) }.joined()
        let answer = try await send("POST", "/webhooks/call", body: body, headers: ["X-CometChat-Signature": signature])
        return answer["rang"] as? Int ?? 0
    }

    /// Returns a JWT that is valid for five minutes, signed with the login's HS256 key.
    func jwt() throws -> String {
        let now = Int(Date().timeIntervalSince1970)
        let claims: Object = ["sub": "back-end", "scope": "broker.notify", "iat": now, "exp": now + 300]
        let text = try [encoded(["alg": "HS256", "typ": "JWT"]), encoded(claims)].map(base64URL).joined(separator: ".")
        return try "\(text).\(base64URL(hmacSHA256("LOGIN_SECRET", Data(text.utf8))))"
    }

    /// Retries lost answers, 429 and 502 to 504 twice, after `Retry-After`, a minute at most, or a second. Throws other errors.
    func send(_ method: String, _ path: String, body: Data? = nil, headers: [String: String]? = nil) async throws -> Object {
        guard let url = URL(string: broker + path) else { throw Failure(answer: "BROKER is not a URL") }
        var request = URLRequest(url: url, timeoutInterval: 10)
        (request.httpMethod, request.httpBody) = (method, body)
        for tries in 1... {
            request.allHTTPHeaderFields = try headers ?? ["Authorization": "Bearer \(jwt())"]
            var seconds: Int?
            do {
                let (data, response) = try await Self.session.data(for: request)
                guard let response = response as? HTTPURLResponse else { break }
                if response.statusCode < 300 { return try JSONSerialization.jsonObject(with: data) as? Object ?? [:] }
                guard [429, 502, 503, 504].contains(response.statusCode), tries < 3 else {
                    throw Failure(answer: String(decoding: data, as: UTF8.self))
                }
                seconds = Int(response.value(forHTTPHeaderField: "Retry-After") ?? "")
            } catch is URLError where tries < 3 {}
            try await Task.sleep(for: .seconds(min(max(seconds ?? 1, 0), 60)))
        }
        throw Failure(answer: "No HTTP")
    }

    func encoded(_ object: Object) throws -> Data { try JSONSerialization.data(withJSONObject: object) }

    func base64URL(_ data: Data) -> String {
        data.base64EncodedString().replacingOccurrences(of: "+", with: "-").replacingOccurrences(of: "/", with: "_")
            .replacingOccurrences(of: "=", with: "")
    }

    func hmacSHA256(_ variable: String, _ message: Data) throws -> Data {
        let path = ProcessInfo.processInfo.environment[variable] ?? ""
        // The first line: while a webhook's secret is replaced, the broker's file has two.
        let secret = try String(contentsOfFile: path, encoding: .utf8).prefix { !$0.isNewline }
        #if canImport(CryptoKit)
            return Data(HMAC<SHA256>.authenticationCode(for: message, using: SymmetricKey(data: Data(secret.utf8))))
        #else
            return Data(SHA256.authenticationCode(for: [UInt8](message), key: [UInt8](secret.utf8)))
        #endif
    }

    static func main() async {
        do {
            print(try await run(CommandLine.arguments.dropFirst() + ["", "", "", "", ""]))
        } catch {
            FileHandle.standardError.write(Data("\(error)\n".utf8))
            exit(1)
        }
    }

    static func run(_ words: ArraySlice<String>) async throws -> String {
        let (backEnd, first, second, third) = (BackEnd(), words[2], words[3], words[4])
        switch words[1] {
        case "report":
            // The status is for `task_complete`. Other events ignore it.
            let eventID = words[5].isEmpty ? UUID().uuidString : words[5]
            let answer = try await backEnd.report(first, second, third, data: ["status": "success"], eventID: eventID)
            return "\(answer["pushes"] ?? 0)"
        case "ask": return try await backEnd.ask(first, second)
        case "ring":
            let phones = try await backEnd.ring(first, second, third)
            return "\(phones)"
        default: throw Failure(answer: "backend report USER SESSION TYPE [EVENT] | ask USER SESSION | ring CALLER RECEIVER CALL")
        }
    }
}
