import Sealing
import Sodium
public import Vocabulary

/// A question to Apple: does it take this provider's pushes for an app in an environment? Asked by a background push to a token of zeros, which is
/// nobody's: Apple judges the provider before the token.
public struct Probe: Sendable {
    public enum Verdict: Sendable, Equatable {
        case taken
        /// Key, certificate or topic is at fault.
        case refused(APNsReason)
        /// Nothing is known: Apple could not be reached, or gave an answer that says nothing about the provider.
        case unknown(APNsReason)
    }

    /// The app's bundle id.
    public let topic: String
    public let environment: PushEnvironment
    /// False if the key may not be for this environment: without a list of apps it may be for one only.
    public let isRequired: Bool

    public init(topic: String, environment: PushEnvironment, isRequired: Bool) {
        (self.topic, self.environment, self.isRequired) = (topic, environment, isRequired)
    }

    /// - Parameter deadlineMs: unix ms, of the sender's deadline clock.
    public func push(deadlineMs: UInt64) throws -> Push {
        Push(
            apnsID: Push.randomID(), token: try Secret(count: 32) { _ in }, environment: environment, topic: topic,
            type: .background, priority: 5, expirationS: 0, payload: Array(#"{"aps":{"content-available":1}}"#.utf8),
            sealedAtMs: 0,
            deadlineMs: deadlineMs)
    }
}

extension Probe.Verdict {
    /// What a probe's outcome says of the provider.
    public init(_ outcome: Outcome) {
        switch outcome {
        case .delivered, .failed(_, .badDeviceToken, _), .failed(_, .unregistered, _), .failed(_, .expiredToken, _): self = .taken
        case .failed(_, .invalidProviderToken, _): self = .refused(.invalidProviderToken)
        case .failed(let status, let reason, .configuration) where status != 0: self = .refused(reason)
        // Apple found fault with the push, so the provider was let in.
        case .failed(400, _, _), .failed(410, _, _): self = .taken
        case .failed(_, let reason, _): self = .unknown(reason)
        }
    }
}

extension Courier {
    func ask(_ probe: Probe, withinMs: UInt64) async -> Probe.Verdict {
        // No room for the token of zeros: Apple was not asked.
        guard let push = try? probe.push(deadlineMs: deadlineClock() + withinMs) else { return .unknown(.other) }
        return Probe.Verdict(await send(push))
    }
}

extension Push {
    /// A new `apns-id` (RFC 9562, version 4).
    public static func randomID() -> String {
        var bytes = Sodium.randomBytes(16)
        bytes[6] = bytes[6] & 0x0f | 0x40
        bytes[8] = bytes[8] & 0x3f | 0x80
        let digits = Array(Hex.encode(bytes.span))
        return [0..<8, 8..<12, 12..<16, 16..<20, 20..<32].map { String(digits[$0]) }.joined(separator: "-")
    }
}
