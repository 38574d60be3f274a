import Sodium
import Vocabulary

// `#expect` can't take a span, so the tests speak in arrays.
func hex(_ bytes: [UInt8]) -> String { Hex.encode(bytes.span) }

func equal(_ left: [UInt8], _ right: [UInt8]) -> Bool { Sodium.equal(left.span, right.span) }

func unpaddedCount(_ bytes: [UInt8], block: Int) -> Int? { Sodium.unpaddedCount(bytes.span, block: block) }

func verify(_ signature: [UInt8], _ message: [UInt8], _ key: [UInt8]) -> Bool {
    Ed25519.verify(signature.span, message: message.span, publicKey: key.span)
}

func isPublicKey(_ key: [UInt8]) -> Bool { Ed25519.isPublicKey(key.span) }

func isValid(_ code: [UInt8], _ message: [UInt8], _ key: [UInt8]) -> Bool {
    HMACSHA256.isValid(code.span, for: message.span, key: key.span)
}

func encode(_ bytes: [UInt8], _ alphabet: Base64) -> String { alphabet.encode(bytes.span) }

func sha256(_ text: String) -> [UInt8] { SHA256.hash(Array(text.utf8).span) }

func hmac(_ message: [UInt8], _ key: [UInt8]) -> [UInt8] { HMACSHA256.code(message.span, key: key.span) }

func genericHash(_ text: String) -> [UInt8] { GenericHash.hash(Array(text.utf8).span) }
