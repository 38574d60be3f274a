import JSON
import Sealing
import Sodium

extension JSONWriter {
    /// A secret in base64url, written in place: an answer that is due must not depend on a free slot.
    mutating func add(_ name: String, _ capability: some Capability) {
        add(name, count: Base64.url.encodedCount(capability.secret.count)) { text in
            capability.secret.withBytes { Base64.url.encode($0, into: &text) }
        }
    }
}
