import Vocabulary

extension Entry {
    /// The entry's one encoding: JSON, keys sorted, no spaces, ASCII. `audit/entry.schema.json` describes it.
    public var encoded: [UInt8] {
        var json: [UInt8] = []
        json.reserveCapacity(192)
        encode(into: &json)
        return json
    }

    /// Appends `encoded`.
    public func encode(into json: inout [UInt8]) {
        json.append("{\"at\":\"")
        json.append(timeMs: atMs)
        switch op {
        case .brokerStarted(let node, let version, let policy, let resolution, let binary):
            json.append("\",\"binary\":\"")
            json.append(hexOf: binary)
            json.append("\",\"node\":\"", node.description, "\",\"op\":\"broker.started\",\"policy\":\"")
            json.append(hexOf: policy)
            json.append("\",\"resolution\":")
            json.append(decimal: UInt64(resolution))
            json.append(",\"version\":\"", version.description, "\"}")
        case .brokerStopped(let node):
            json.append("\",\"node\":\"", node.description, "\",\"op\":\"broker.stopped\"}")
        case .policyLoaded(let name, let policy):
            json.append("\",\"name\":\"", name.description, "\",\"op\":\"policy.loaded\",\"policy\":\"")
            json.append(hexOf: policy)
            json.append("\"}")
        case .keysGenerated(let generation):
            json.append("\",\"generation\":")
            json.append(decimal: UInt64(generation))
            json.append(",\"op\":\"keys.generated\"}")
        case .keysRatcheted(let epoch, let swept):
            json.append("\",\"epoch\":")
            json.append(decimal: epoch)
            json.append(",\"op\":\"keys.ratcheted\",\"swept\":")
            json.append(decimal: swept)
            json.append("}")
        case .tokenOpened(let id, let job, let template):
            json.append("\",\"id\":\"")
            json.append(hexOf: id)
            json.append("\",\"job\":\"")
            json.append(hexOf: job)
            json.append("\",\"op\":\"token.opened\",\"template\":\"", template.description, "\"}")
        case .pushDelivered(let job, let status):
            json.append("\",\"job\":\"")
            json.append(hexOf: job)
            json.append("\",\"op\":\"push.delivered\",\"status\":")
            json.append(decimal: UInt64(status))
            json.append("}")
        case .pushFailed(let job, let status, let reason):
            json.append("\",\"job\":\"")
            json.append(hexOf: job)
            json.append("\",\"op\":\"push.failed\",\"reason\":\"", reason.rawValue, "\",\"status\":")
            json.append(decimal: UInt64(status))
            json.append("}")
        case .tokenSealed(let id, let untilMs):
            json.append("\",\"id\":\"")
            json.append(hexOf: id)
            json.append("\",\"op\":\"token.sealed\",\"until\":\"")
            json.append(timeMs: untilMs)
            json.append("\"}")
        case .tokenPurged(let id, let cause):
            json.append("\",\"cause\":\"", cause.name, "\",\"id\":\"")
            json.append(hexOf: id)
            json.append("\",\"op\":\"token.purged\"")
            if case .expired(let untilMs) = cause {
                json.append(",\"until\":\"")
                json.append(timeMs: untilMs)
                json.append("\"")
            }
            json.append("}")
        case .bucketClosed(let untilMs, let sealed, let expired, let ended):
            json.append("\",\"ended\":")
            json.append(decimal: ended)
            json.append(",\"expired\":")
            json.append(decimal: expired)
            json.append(",\"op\":\"bucket.closed\",\"sealed\":")
            json.append(decimal: sealed)
            json.append(",\"until\":\"")
            json.append(timeMs: untilMs)
            json.append("\"}")
        case .requestRefused(let cause, let count):
            json.append("\",\"cause\":\"", cause.rawValue, "\",\"count\":")
            json.append(decimal: UInt64(count))
            json.append(",\"op\":\"request.refused\"}")
        case .ledgerClosed(let next):
            json.append("\",\"next\":\"", next.description, "\",\"op\":\"ledger.closed\"}")
        case .ledgerOpened(let previous, let size, let root, let jobs):
            json.append("\",\"jobs\":")
            json.append(decimal: jobs)
            json.append(",\"op\":\"ledger.opened\",\"previous\":\"", previous.description, "\",\"root\":\"")
            json.append(hexOf: root)
            json.append("\",\"size\":")
            json.append(decimal: size)
            json.append("}")
        case .bucketCarried(let untilMs, let live):
            json.append("\",\"live\":")
            json.append(decimal: live)
            json.append(",\"op\":\"bucket.carried\",\"until\":\"")
            json.append(timeMs: untilMs)
            json.append("\"}")
        }
    }
}

extension [UInt8] {
    @inline(__always)
    mutating func append(_ text: String) { append(contentsOf: text.utf8) }

    @inline(__always)
    mutating func append(_ before: String, _ value: String, _ after: String) {
        append(contentsOf: before.utf8)
        append(contentsOf: value.utf8)
        append(contentsOf: after.utf8)
    }

    /// RFC 3339 to the second. Times from year 10000 on are a programmer's error.
    @inline(__always)
    mutating func append(timeMs: UInt64) {
        precondition(timeMs < Timestamp.endMs, "a time beyond year 9999")
        Timestamp.append(timeMs, to: &self)
    }

    /// Decimal digits without leading zeros.
    mutating func append(decimal number: UInt64) {
        var power: UInt64 = 1
        while number / power >= 10 { power *= 10 }
        while power > 0 {
            append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: number / power % 10))
            power /= 10
        }
    }

    mutating func append(hexOf id: some OpaqueID) {
        Hex.append(id.high, to: &self)
        Hex.append(id.low, to: &self)
    }

    mutating func append(hexOf digest: Digest) {
        Hex.append(digest.first, to: &self)
        Hex.append(digest.second, to: &self)
        Hex.append(digest.third, to: &self)
        Hex.append(digest.fourth, to: &self)
    }
}
