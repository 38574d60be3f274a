import Vocabulary

/// What can be told of a device token from its bytes alone, for people who wonder why Apple refuses it. Holds nothing of it.
struct TokenShape: Equatable {
    let isToken: Bool
    /// What it looks like, and what to do.
    let text: String

    /// `bytes`: as it was given, without the newline.
    init(_ bytes: [UInt8]) {
        let isHex = !bytes.isEmpty && bytes.allSatisfy(Self.isHexDigit)
        switch bytes.count {
        case 0: (isToken, text) = (false, "the input is empty")
        case 2...200 where isHex && bytes.count % 2 == 0:
            let length = bytes.count / 2
            isToken = true
            text =
                switch length {
                case 32:
                    "a device token of 32 bytes, Apple's present length. Its environment, sandbox or production, is not visible"
                case 80: "a token of 80 bytes, like those of Xcode's simulated phones and of Live Activities"
                default: "a token of \(length) bytes. Lengths can vary, but device tokens presently have 32"
                }
        case _ where isHex && bytes.count % 2 == 1:
            (isToken, text) = (false, "hexadecimal with an odd number of digits. Check whether a digit was lost")
        case _ where isHex: (isToken, text) = (false, "hexadecimal for \(bytes.count / 2) bytes: a token must have 1 to 100")
        default: (isToken, text) = (false, Self.mistake(bytes))
        }
    }

    /// What people give in place of a token.
    private static func mistake(_ bytes: [UInt8]) -> String {
        let spaces = bytes.filter { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }.count
        if bytes.first == UInt8(ascii: "<"), bytes.last == UInt8(ascii: ">") {
            return "the description of a Data or NSData. Have the app write each byte as two hexadecimal digits"
        }
        if bytes.starts(with: Array("{length".utf8)) {
            return "the description of a Data. Have the app write each byte as two hexadecimal digits"
        }
        if bytes.starts(with: Array("0x".utf8)) { return "hexadecimal with the prefix 0x. Remove the prefix" }
        if bytes.starts(with: Array("ExponentPushToken[".utf8)) || bytes.starts(with: Array("ExpoPushToken[".utf8)) {
            return "a token of Expo's service. Use the device's own push token instead"
        }
        if bytes.contains(UInt8(ascii: ":")), bytes.count > 100 {
            return "probably a token of Firebase, Google's service. Use the APNs token"
        }
        if bytes.first == UInt8(ascii: "{") || bytes.first == UInt8(ascii: "\"") { return "JSON. Use only the value" }
        if spaces > 0, bytes.allSatisfy({ isHexDigit($0) || $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }) {
            return "hexadecimal with blanks. Remove the blanks"
        }
        if bytes.count % 4 == 0, (40...48).contains(bytes.count), bytes.allSatisfy(isBase64) {
            return "probably base64. Write the token in hexadecimal"
        }
        return "not hexadecimal. A token is an even number of digits 0 to 9 and a to f"
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool { Hex.value(byte) != nil }

    private static func isBase64(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5a).contains(byte) || (0x61...0x7a).contains(byte)
            || [0x2b, 0x2d, 0x2f, 0x3d, 0x5f].contains(byte)
    }
}
