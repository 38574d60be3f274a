import AuditPage
import Broker
public import EventLoop
public import HTTPServer
public import Ledger
public import Shares

/// Serves `/audit/`: the files of the ledger's folder, which any static server could publish, and the auditor's page.
public struct AuditFiles: Sendable {
    private let reader: LogFileReader
    private let key: VerifierKey
    private let isCurrent: @Sendable () -> Bool

    /// - Parameters:
    ///   - loop: the loop of the server.
    ///   - shares: the server's shares.
    ///   - key: the log's public key, served as `ledger.vkey`.
    ///   - isCurrent: false while another node may have a newer checkpoint. Then this one isn't served, and a balancer takes the node out.
    public init(
        _ folder: LedgerFolder, loop: EventLoop, shares: Shares, key: VerifierKey,
        isCurrent: @escaping @Sendable () -> Bool = { true }
    ) {
        reader = LogFileReader(loop: loop, shares: shares) { try folder.read($0) }
        (self.key, self.isCurrent) = (key, isCurrent)
    }

    /// - Throws: `BrokerError`: `.notFound`, or the refusal of a share; or why a file can't be read.
    public func respond(to request: HTTPRequest) async throws -> HTTPResponse {
        let path = request.path
        // The redirect is relative, because a proxy may serve the log under another path.
        if path == "/audit" {
            return HTTPResponse(
                status: 308, contentType: .text, headers: [.init("Location", "audit/")],
                body: Array("The auditor's page is at audit/\n".utf8))
        }
        var answer = try await found(String(path.dropFirst("/audit/".count)), request.owners)
        answer.headers.append(.init("X-Content-Type-Options", "nosniff"))
        return answer
    }

    private func found(_ name: String, _ owners: Owners) async throws -> HTTPResponse {
        if let file = AuditPage.file(at: name) {
            var answer = HTTPResponse(
                status: 200, contentType: .other(file.contentType),
                headers: [
                    .init("Cache-Control", "no-cache"), .init("Content-Security-Policy", AuditPage.contentSecurityPolicy),
                    .init("Referrer-Policy", "no-referrer"),
                ], body: file.bytes)
            answer.isBodyShared = true
            return answer
        }
        if name == "ledger.vkey" { return text(Array("\(key)\n".utf8)) }
        if name == "checkpoint", !isCurrent() { throw BrokerError.storageUnavailable }
        guard Self.isLogPath(name), let bytes = try await reader.read(name, for: owners) else { throw BrokerError.notFound }
        if name == "checkpoint" { return text(bytes) }
        let isPolicy = name.hasPrefix("policies/")
        return HTTPResponse(
            status: 200, contentType: isPolicy ? .json : .other("application/octet-stream"),
            headers: [.init("Cache-Control", "public, max-age=31536000, immutable")], body: bytes)
    }

    private func text(_ bytes: [UInt8]) -> HTTPResponse {
        HTTPResponse(status: 200, contentType: .text, headers: [.init("Cache-Control", "no-cache")], body: bytes)
    }

    /// Returns whether a path can name a file of the log (C2SP tlog-tiles). No other file is ever read.
    static func isLogPath(_ path: String) -> Bool {
        if path == "checkpoint" { return true }
        let parts = path.split(separator: "/", omittingEmptySubsequences: false)
        switch parts.first {
        case "policies":
            guard parts.count == 2, parts[1].hasSuffix(".json") else { return false }
            return parts[1].dropLast(5).utf8.count == 64 && parts[1].dropLast(5).utf8.allSatisfy(isHex)
        case "tile":
            guard parts.count >= 3, parts.count <= 12, parts[1] == "entries" || isNumber(parts[1], 2) else { return false }
            return parts.dropFirst(2).allSatisfy(isTilePart)
        default: return false
        }
    }

    private static func isTilePart(_ part: Substring) -> Bool {
        var part = part
        if part.hasPrefix("x") { part = part.dropFirst() }
        if part.hasSuffix(".p") { part = part.dropLast(2) }
        return isNumber(part, 3)
    }

    private static func isNumber(_ text: Substring, _ most: Int) -> Bool {
        (1...most).contains(text.utf8.count) && text.utf8.allSatisfy { (0x30...0x39).contains($0) }
    }

    private static func isHex(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte) }
}
