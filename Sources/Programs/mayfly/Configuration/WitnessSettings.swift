import Broker
import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import TLS

/// The witnesses that cosign the log, and the behaviour without their quorum.
struct WitnessSettings {
    let file: GivenFile
    let policy: WitnessPolicy
    let failureMode: Sequencer.WitnessFailureMode

    /// Returns nil if `--witness-policy` isn't set.
    init?(_ configuration: Configuration) throws {
        guard let file = try configuration.file(.witnessPolicy) else {
            guard configuration[.witnessFailure] == nil else {
                throw configuration.invalid(.witnessFailure, "has no effect without --witness-policy: set both")
            }
            return nil
        }
        guard let mode = Sequencer.WitnessFailureMode(rawValue: configuration.value(.witnessFailure)) else {
            throw configuration.invalid(.witnessFailure, "must be open or closed")
        }
        self.file = file
        failureMode = mode
        policy = try Self.policy(file)
        guard !policy.witnesses.isEmpty else { throw file.failure("names no witness: remove --witness-policy") }
        for witness in policy.witnesses { try Self.check(witness, file) }
    }

    static func policy(_ file: GivenFile) throws -> WitnessPolicy {
        let bytes = try file.read(limit: WitnessPolicy.byteLimit + 1)
        return try CommandFailed.naming("\(file)") { try WitnessPolicy(bytes) }
    }

    /// - Throws: `CommandFailed` if the policy lists logs, but not this one.
    func check(_ key: VerifierKey) throws {
        guard policy.admits(key) else {
            throw file.failure("is for other logs: none of its log lines contains \(key)")
        }
    }

    private static func check(_ witness: WitnessPolicy.Witness, _ file: GivenFile) throws {
        guard let url = witness.url else {
            throw CommandFailed("\(file): the witness \(witness.name) has no URL")
        }
        guard PlainURL.isPlain(url) else {
            throw CommandFailed("\(file): the URL of the witness \(witness.name) must be ASCII, without ?, # and @")
        }
        guard PlainURL.isProtected(url) else {
            throw CommandFailed(
                "\(file): the URL of the witness \(witness.name) must begin with https://, or http:// and a loopback address"
            )
        }
    }

    func start(
        on loop: EventLoop, _ time: BrokerTime, _ metrics: Metrics, _ log: Logger
    ) throws -> Witnesses {
        let isSecure = policy.witnesses.contains { $0.url?.hasPrefix("https:") == true }
        let client = HTTPClient(loop: loop, tls: isSecure ? try TLSContext.client(trust: .system, alpn: ["http/1.1"]) : nil)
        return Witnesses(loop: loop, policy: policy, time: time, metrics: metrics, log: log) { url, body, timeoutMs in
            let deadlineMs = Clock.monotonicMs + timeoutMs
            do throws(ClientError) {
                return try await Self.post(client, url, body, timeoutMs)
            } catch {
                // The witness may have closed the kept connection while we wrote. Repeating the request is safe.
                let now = Clock.monotonicMs
                guard error == .closedEarly, now < deadlineMs else { throw error }
                return try await Self.post(client, url, body, deadlineMs - now)
            }
        }
    }

    private static func post(
        _ client: HTTPClient, _ url: String, _ body: [UInt8], _ timeoutMs: UInt64
    ) async throws(ClientError) -> Witnesses.Answer {
        let answer = try await client.send(
            url, method: .post, body: body, timeoutMs: timeoutMs, maximumBytes: Witnesses.answerLimit)
        return Witnesses.Answer(status: answer.status, contentType: answer.contentType, body: answer.body)
    }
}

/// Requirements for URLs that the broker calls.
enum PlainURL {
    /// Returns whether the URL is ASCII and has no query, fragment or user, which could hold a secret.
    static func isPlain(_ url: String) -> Bool { url.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"?#@".utf8.contains($0) } }

    /// Returns whether nobody else can change the answer: https, or http to this machine.
    static func isProtected(_ url: String) -> Bool {
        url.hasPrefix("https://") && url.utf8.count > 8 || url.hasPrefix("http://") && isLoopback(url.dropFirst(7))
    }

    /// - Parameter rest: a URL without its scheme.
    private static func isLoopback(_ rest: Substring) -> Bool {
        let authority = String(rest.prefix { $0 != "/" })
        guard !authority.hasPrefix("unix:") else { return false }
        return (SocketAddress(parsing: authority) ?? SocketAddress(parsing: authority + ":80"))?.isLoopback ?? false
    }
}

/// Checkpoints of the log that are kept outside the state folder (`--ledger-mirror`, `--not-before`).
struct KeptCheckpointSettings {
    private enum Mirror {
        case url(String)
        case folder(String)
    }

    private let mirror: Mirror?
    private let notBefore: (file: GivenFile, bytes: [UInt8])?

    private static let byteLimit = 64 << 10
    private static let timeoutMs: UInt64 = 5_000

    var isEmpty: Bool { mirror == nil && notBefore == nil }

    init(_ configuration: Configuration) throws {
        mirror = try configuration[.ledgerMirror].map(Self.mirror)
        notBefore = try configuration.file(.notBefore).map { ($0, try $0.read(limit: Self.byteLimit)) }
    }

    private static func mirror(_ given: String) throws -> Mirror {
        let name = Setting.ledgerMirror.named
        if given.hasPrefix("https://") || given.hasPrefix("http://") {
            guard PlainURL.isPlain(given), PlainURL.isProtected(given) else {
                throw UsageError(
                    "\(name) must be https://, or http:// with a loopback address, in ASCII and without ?, # and @. Otherwise others could change the answer"
                )
            }
            return .url(given.hasSuffix("/") ? given : given + "/")
        }
        let file = GivenFile(given.hasPrefix("file://") ? String(given.dropFirst(7)) : given, name)
        let status = try File.status(file.path)
        guard status?.kind == .folder else {
            let what = "is neither a folder nor a URL that begins with https://"
            throw status == nil && !file.path.hasPrefix("/") ? UsageError("\(name): \(file) \(what)") : file.failure(what)
        }
        return .folder(file.path)
    }

    /// - Parameter loop: runs the HTTP client of a mirror with a URL.
    func checkpoints(on loop: EventLoop) throws -> [KeptCheckpoint] {
        var all: [KeptCheckpoint] = []
        if let notBefore {
            all.append(KeptCheckpoint(name: "the file that \(Setting.notBefore.named) names") { notBefore.bytes })
        }
        let name = "the copy that \(Setting.ledgerMirror.named) names"
        switch mirror {
        case .url(let prefix):
            let tls = prefix.hasPrefix("https:") ? try TLSContext.client(trust: .system, alpn: ["http/1.1"]) : nil
            let client = HTTPClient(loop: loop, tls: tls)
            all.append(KeptCheckpoint(name: name, isRemote: true) { try await Self.checkpoint(prefix, client) })
        case .folder(let path):
            all.append(
                KeptCheckpoint(name: name) {
                    do {
                        return try await FolderSource(path).read(TilePath.checkpoint)
                    } catch let error as Errno { throw CheckFailed(error.reason) }
                })
        case nil: break
        }
        return all
    }

    private static func checkpoint(_ prefix: String, _ client: HTTPClient) async throws -> [UInt8]? {
        let answer = try await client.send(prefix + TilePath.checkpoint, timeoutMs: timeoutMs, maximumBytes: byteLimit)
        switch answer.status {
        case 200: return answer.body
        case 404, 410: return nil
        default: throw ClientError.refused(answer.status)
        }
    }
}
