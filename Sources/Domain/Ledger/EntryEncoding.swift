import Vocabulary

extension Entry {
    /// The entry's canonical encoding: ASCII JSON with sorted keys and no spaces. `audit/entry.schema.json` describes it.
    public var encoded: [UInt8] {
        var json: [UInt8] = []
        json.reserveCapacity(192)
        encode(into: &json)
        return json
    }

    /// Appends `encoded`.
    public func encode(into json: inout [UInt8]) {
        json.append("{\"at\":\"", timeMs: atMs)
        switch op {
        case .brokerStarted(let node, let version, let policy, let resolution, let binary):
            json.append("\",\"binary\":\"", hexOf: binary)
            json.append("\",\"node\":\"", node.description)
            json.append("\",\"op\":\"broker.started\",\"policy\":\"", hexOf: policy)
            json.append("\",\"resolution\":", decimal: UInt64(resolution))
            json.append(",\"version\":\"", version.description, "\"}")
        case .brokerStopped(let node):
            json.append("\",\"node\":\"", node.description, "\",\"op\":\"broker.stopped\"}")
        case .policyLoaded(let name, let policy):
            json.append("\",\"name\":\"", name.description)
            json.append("\",\"op\":\"policy.loaded\",\"policy\":\"", hexOf: policy)
            json.append("\"}")
        case .keysGenerated(let generation):
            json.append("\",\"generation\":", decimal: UInt64(generation))
            json.append(",\"op\":\"keys.generated\"}")
        case .keysRatcheted(let epoch, let swept):
            json.append("\",\"epoch\":", decimal: epoch)
            json.append(",\"op\":\"keys.ratcheted\",\"swept\":", decimal: swept)
            json.append("}")
        case .tokenOpened(let id, let job, let template):
            json.append("\",\"id\":\"", hexOf: id)
            json.append("\",\"job\":\"", hexOf: job)
            json.append("\",\"op\":\"token.opened\",\"template\":\"", template.description, "\"}")
        case .pushDelivered(let job, let status):
            json.append("\",\"job\":\"", hexOf: job)
            json.append("\",\"op\":\"push.delivered\",\"status\":", decimal: UInt64(status))
            json.append("}")
        case .pushFailed(let job, let status, let reason):
            json.append("\",\"job\":\"", hexOf: job)
            json.append("\",\"op\":\"push.failed\",\"reason\":\"", reason.rawValue)
            json.append("\",\"status\":", decimal: UInt64(status))
            json.append("}")
        case .tokenSealed(let id, let untilMs):
            json.append("\",\"id\":\"", hexOf: id)
            json.append("\",\"op\":\"token.sealed\",\"until\":\"", timeMs: untilMs)
            json.append("\"}")
        case .tokenPurged(let id, let cause):
            json.append("\",\"cause\":\"", cause.name)
            json.append("\",\"id\":\"", hexOf: id)
            json.append("\",\"op\":\"token.purged\"")
            if case .expired(let untilMs) = cause {
                json.append(",\"until\":\"", timeMs: untilMs)
                json.append("\"")
            }
            json.append("}")
        case .bucketClosed(let untilMs, let sealed, let expired, let ended):
            json.append("\",\"ended\":", decimal: ended)
            json.append(",\"expired\":", decimal: expired)
            json.append(",\"op\":\"bucket.closed\",\"sealed\":", decimal: sealed)
            json.append(",\"until\":\"", timeMs: untilMs)
            json.append("\"}")
        case .requestRefused(let cause, let count):
            json.append("\",\"cause\":\"", cause.rawValue)
            json.append("\",\"count\":", decimal: UInt64(count))
            json.append(",\"op\":\"request.refused\"}")
        case .ledgerClosed(let next):
            json.append("\",\"next\":\"", next.description, "\",\"op\":\"ledger.closed\"}")
        case .ledgerOpened(let previous, let size, let root, let jobs):
            json.append("\",\"jobs\":", decimal: jobs)
            json.append(",\"op\":\"ledger.opened\",\"previous\":\"", previous.description)
            json.append("\",\"root\":\"", hexOf: root)
            json.append("\",\"size\":", decimal: size)
            json.append("}")
        case .bucketCarried(let untilMs, let live):
            json.append("\",\"live\":", decimal: live)
            json.append(",\"op\":\"bucket.carried\",\"until\":\"", timeMs: untilMs)
            json.append("\"}")
        }
    }
}

extension [UInt8] {
    @inline(__always)
    mutating func append(_ text: String) { append(contentsOf: text.utf8) }

    @inline(__always)
    mutating func append(_ before: String, _ value: String, _ after: String = "") {
        append(before)
        append(value)
        append(after)
    }

    /// Appends a time in RFC 3339, to the second.
    /// - Precondition: the time is before the year 10000.
    @inline(__always)
    mutating func append(_ before: String, timeMs: UInt64) {
        precondition(timeMs < Timestamp.endMs, "a time beyond year 9999")
        append(before)
        Timestamp.append(timeMs, to: &self)
    }

    mutating func append(_ before: String, decimal number: UInt64) {
        append(before)
        var power: UInt64 = 1
        while number / power >= 10 { power *= 10 }
        while power > 0 {
            append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: number / power % 10))
            power /= 10
        }
    }

    mutating func append(_ before: String, hexOf id: some OpaqueID) {
        append(before)
        Hex.append(id.high, to: &self)
        Hex.append(id.low, to: &self)
    }

    mutating func append(_ before: String, hexOf digest: Digest) {
        append(before)
        Hex.append(digest.first, to: &self)
        Hex.append(digest.second, to: &self)
        Hex.append(digest.third, to: &self)
        Hex.append(digest.fourth, to: &self)
    }
}
