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
        Timestamp.append(atMs, to: &json)
        switch op {
        case .brokerStarted(let node, let version, let policy, let resolution):
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
        case .keysRatcheted(let epoch):
            json.append("\",\"epoch\":")
            json.append(decimal: epoch)
            json.append(",\"op\":\"keys.ratcheted\"}")
        case .tokenSealed(let ref, let kind, let untilMs):
            json.append("\",\"kind\":\"", kind.rawValue, "\",\"op\":\"token.sealed\",\"ref\":\"")
            json.append(hexOf: ref)
            json.append("\",\"until\":\"")
            Timestamp.append(untilMs, to: &json)
            json.append("\"}")
        case .tokenOpened(let ref, let job, let template):
            json.append("\",\"job\":\"")
            json.append(hexOf: job)
            json.append("\",\"op\":\"token.opened\",\"ref\":\"")
            json.append(hexOf: ref)
            json.append("\",\"template\":\"", template.description, "\"}")
        case .pushDelivered(let ref, let job, let status):
            json.append("\",\"job\":\"")
            json.append(hexOf: job)
            json.append("\",\"op\":\"push.delivered\",\"ref\":\"")
            json.append(hexOf: ref)
            json.append("\",\"status\":")
            json.append(decimal: UInt64(status))
            json.append("}")
        case .pushFailed(let ref, let job, let status, let reason):
            json.append("\",\"job\":\"")
            json.append(hexOf: job)
            json.append("\",\"op\":\"push.failed\",\"reason\":\"", reason.rawValue, "\",\"ref\":\"")
            json.append(hexOf: ref)
            json.append("\",\"status\":")
            json.append(decimal: UInt64(status))
            json.append("}")
        case .tokenPurged(let ref, let cause):
            json.append("\",\"cause\":\"", cause.rawValue, "\",\"op\":\"token.purged\",\"ref\":\"")
            json.append(hexOf: ref)
            json.append("\"}")
        case .requestRefused(let cause, let count):
            json.append("\",\"cause\":\"", cause.rawValue, "\",\"count\":")
            json.append(decimal: UInt64(count))
            json.append(",\"op\":\"request.refused\"}")
        case .ledgerClosed(let next):
            json.append("\",\"next\":\"", next.description, "\",\"op\":\"ledger.closed\"}")
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

    /// Decimal digits without leading zeros.
    mutating func append(decimal number: UInt64) {
        var power: UInt64 = 1
        while number / power >= 10 { power *= 10 }
        while power > 0 {
            append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: number / power % 10))
            power /= 10
        }
    }

    mutating func append(hexOf digest: Digest) {
        for index in 0..<Digest.count {
            let byte = digest.bytes[index]
            for digit in [byte >> 4, byte & 15] {
                append(digit < 10 ? digit + UInt8(ascii: "0") : digit - 10 + UInt8(ascii: "a"))
            }
        }
    }
}
