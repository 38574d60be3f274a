import Sodium
public import Vocabulary

// What a push carries so that the phone knows which chat it is for: only who holds the key can tell.
extension KeyRing {
    /// The first 16 bytes of `HMAC-SHA256(roomid, "mayfly/v1 handle" || kind || slot)`. `kind`: ASCII, as in "room".
    public func handle(_ room: RoomID, kind: String, slot: UInt8) -> Handle {
        handle(key: room.secret, kind: kind, slot: slot, id: Span())
    }

    /// The first 16 bytes of `HMAC-SHA256(key, "mayfly/v1 handle" || kind || slot || id)`, for audiences: slot 0.
    public func handle(key: Secret, kind: String, slot: UInt8, id: Span<UInt8>) -> Handle {
        let prefix = Array("mayfly/v1 handle\(kind)".utf8)
        let code = key.withBytes { key in
            var code = HMACSHA256(key: key)
            code.update(prefix.span)
            code.update(slot)
            code.update(id)
            return code.finish()
        }
        return Handle(bytes: code.span.extracting(first: Handle.count))!
    }
}

/// What one registration's handles are made with: it is told to its device, and to no other.
public struct HandleKey: Capability {
    public let secret: Secret

    public init(_ secret: Secret) {
        precondition(secret.count == Self.count)
        self.secret = secret
    }
}
