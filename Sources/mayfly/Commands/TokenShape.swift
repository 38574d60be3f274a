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
        case 0: (isToken, text) = (false, "nothing was given")
        case 2...200 where isHex && bytes.count % 2 == 0:
            let length = bytes.count / 2
            isToken = true
            text =
                switch length {
                case 32:
                    "a device token: 32 bytes, as Apple gives them today. Whether it is for sandbox or production does not show"
                case 80: "a token of 80 bytes, as those of Xcode's simulated phones and of Live Activities are today"
                default: "a token of \(length) bytes. Apple says that lengths vary; today device tokens have 32"
                }
        case _ where isHex && bytes.count % 2 == 1:
            (isToken, text) = (false, "hexadecimal with an odd number of digits: a digit is missing, or one too many")
        case _ where isHex: (isToken, text) = (false, "hexadecimal for \(bytes.count / 2) bytes: tokens have 1 to 100")
        default: (isToken, text) = (false, Self.mistake(bytes))
        }
    }

    /// What people give in place of a token.
    private static func mistake(_ bytes: [UInt8]) -> String {
        let spaces = bytes.filter { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }.count
        if bytes.first == UInt8(ascii: "<"), bytes.last == UInt8(ascii: ">") {
            return "the description of a Data or NSData: let the app write each byte as two hexadecimal digits"
        }
        if bytes.starts(with: Array("{length".utf8)) {
            return "the description of a Data: let the app write each byte as two hexadecimal digits"
        }
        if bytes.starts(with: Array("0x".utf8)) { return "hexadecimal behind 0x: leave that out" }
        if bytes.starts(with: Array("ExponentPushToken[".utf8)) || bytes.starts(with: Array("ExpoPushToken[".utf8)) {
            return "a token of Expo's service: ask for the device's own push token instead"
        }
        if bytes.contains(UInt8(ascii: ":")), bytes.count > 100 {
            return "it looks like a token of Firebase: that is for Google's service. Give the APNs token"
        }
        if bytes.first == UInt8(ascii: "{") || bytes.first == UInt8(ascii: "\"") { return "JSON: give the bare value" }
        if spaces > 0, bytes.allSatisfy({ isHexDigit($0) || $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }) {
            return "hexadecimal with blanks in or around it: leave those out"
        }
        if bytes.count % 4 == 0, (40...48).contains(bytes.count), bytes.allSatisfy(isBase64) {
            return "it looks like base64: write it in hexadecimal"
        }
        return "not hexadecimal: a token is an even number of the digits 0 to 9 and a to f"
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool { Hex.value(byte) != nil }

    private static func isBase64(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5a).contains(byte) || (0x61...0x7a).contains(byte)
            || [0x2b, 0x2d, 0x2f, 0x3d, 0x5f].contains(byte)
    }
}
