public import Vocabulary

/// The secret part of a queued push.
public struct JobContent: Sendable {
    public let address: PushAddress
    public let sealedAtMs: UInt64
    public let handle: Handle

    public init(address: PushAddress, sealedAtMs: UInt64, handle: Handle) {
        self.address = address
        self.sealedAtMs = sealedAtMs
        self.handle = handle
    }
}

extension JobContext {
    /// `"MFJ2" || g u32be || kind u8 || slot u8 || deadline u64be || expiry u64be || job || purge id || u16be length || template`.
    var associatedData: [UInt8] {
        var data: [UInt8] = []
        data.reserveCapacity(60 + template.utf8.count)
        data.append(contentsOf: "MFJ2".utf8)
        data.append(bigEndian: generation)
        data.append(kind.rawValue)
        data.append(slot)
        data.append(bigEndian: deadlineMs)
        data.append(bigEndian: expiryMs)
        data.append(job)
        data.append(purgeID)
        data.append(counted: template)
        return data
    }
}

extension KeyRing {
    /// Seals a job under `D(epochKey[epoch(deadline)], "job", job)`, with the handle where a token has its ref.
    /// - Parameter size: the deployment's.
    /// - Returns: as many bytes as a token.
    public func sealJob(_ content: JobContent, context: JobContext, size: AddressSize) throws(SealingError) -> [UInt8] {
        guard let key = try jobKey(context) else { throw .outOfReach }
        return try sealAddress(
            content.address, content.sealedAtMs, content.handle, size.padding(context.kind),
            associatedData: context.associatedData, key: key.secret())
    }

    /// Opens a job. It may use the arena's reserve.
    /// - Throws: `.doesNotOpen` if the job is invalid or its key is gone; `.outOf` if no slot is free.
    public func openJob(_ sealed: Span<UInt8>, context: JobContext) throws(SealingError) -> JobContent {
        guard let key = try jobKey(context) else { throw .doesNotOpen }
        let (address, sealedAtMs, handle): (PushAddress, UInt64, Handle) = try openAddress(
            sealed, associatedData: context.associatedData, key: key.secret(for: .acknowledgedPush), for: .acknowledgedPush)
        return JobContent(address: address, sealedAtMs: sealedAtMs, handle: handle)
    }

    /// Returns the job's `apns-id`: a lower-case UUID (RFC 9562, version 8) from `D(epochKey[epoch(deadline)], "apns-id", job)`. The operator can
    /// find a recent job by it. The key lives about ten minutes longer than the deadline; then nobody can.
    public func apnsID(_ job: JobID, deadlineMs: UInt64, generation: UInt32) throws(SealingError) -> String {
        guard var derivation = try derivation(generation, deadlineMs, .apnsID) else { throw .outOfReach }
        job.withBytes { derivation.add($0) }
        var bytes = Array(derivation.digest().bytes.prefix(16))
        bytes[6] = bytes[6] & 0x0f | 0x80
        bytes[8] = bytes[8] & 0x3f | 0x80
        let digits = Array(Hex.encode(bytes.span).utf8)
        var text: [UInt8] = []
        text.reserveCapacity(36)
        for group in [0..<8, 8..<12, 12..<16, 16..<20, 20..<32] {
            if group.lowerBound > 0 { text.append(UInt8(ascii: "-")) }
            text.append(contentsOf: digits[group])
        }
        return String(decoding: text, as: UTF8.self)
    }

    private func jobKey(_ context: JobContext) throws(SealingError) -> Derivation? {
        guard var derivation = try derivation(context.generation, context.deadlineMs, .job) else { return nil }
        derivation.add(context.job.bytes.span)
        return derivation
    }
}
