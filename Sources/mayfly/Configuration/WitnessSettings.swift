import Broker
import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import TLS

/// Which witnesses cosign the log, and what follows when they don't; read and checked before anything is opened.
struct WitnessSettings {
    let file: GivenFile
    let policy: WitnessPolicy
    let failureMode: Sequencer.WitnessFailureMode

    /// Nil without `--witness-policy`.
    init?(_ configuration: Configuration) throws {
        guard let file = configuration.file(.witnessPolicy) else {
            guard configuration[.witnessFailure] == nil else {
                throw configuration.invalid(.witnessFailure, "has no effect without --witness-policy: set both")
            }
            return nil
        }
        guard let mode = Sequencer.WitnessFailureMode(rawValue: configuration[.witnessFailure] ?? "closed") else {
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
        do {
            return try WitnessPolicy(bytes)
        } catch {
            throw CommandFailed("\(file): \(error)")
        }
    }

    /// A policy that lists logs must list this one.
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
        on loop: EventLoop, _ time: BrokerTime, _ metrics: Metrics, _ log: @escaping @Sendable (String) -> Void
    ) throws -> Witnesses {
        let isSecure = policy.witnesses.contains { $0.url?.hasPrefix("https:") == true }
        let client = HTTPClient(loop: loop, tls: isSecure ? try TLSContext.client(trust: .system, alpn: ["http/1.1"]) : nil)
        return Witnesses(loop: loop, policy: policy, time: time, metrics: metrics, log: log) { url, body, timeoutMs in
            let deadlineMs = Clock.monotonicMs + timeoutMs
            do throws(ClientError) {
                return try await Self.post(client, url, body, timeoutMs)
            } catch {
                // The connection kept from the last window may have been closed as we wrote. Being asked twice changes nothing.
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
