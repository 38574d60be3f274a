/// Hexadecimal digits: lower case out, either case in. What it does to bytes of a secret takes a time that depends on their number only.
public enum Hex {
    /// The digit for 0 to 15.
    @inlinable
    public static func digit(_ value: UInt8) -> UInt8 {
        // Without a branch or a table: 39 is from behind "9" to "a".
        let isLetter = (9 &- value) >> 7
        return UInt8(ascii: "0") &+ value &+ isLetter &* 39
    }

    /// The value of a digit; nil for anything else.
    @inlinable
    public static func value(_ digit: UInt8) -> UInt8? {
        let (value, wrong) = parts(digit)
        return wrong == 0 ? value : nil
    }

    /// The value of a digit, and 0; or no matter what, and more than 0. Without a branch.
    @inlinable
    static func parts(_ digit: UInt8) -> (value: UInt8, wrong: UInt8) {
        let number = UInt16(digit) &- 0x30
        let letter = UInt16(digit | 0x20) &- 0x61
        // All ones where it is below ten, or below six.
        let isNumber = UInt16(truncatingIfNeeded: (Int32(number) &- 10) >> 16)
        let isLetter = UInt16(truncatingIfNeeded: (Int32(letter) &- 6) >> 16)
        let value = number & isNumber | (letter &+ 10) & isLetter
        return (UInt8(truncatingIfNeeded: value), UInt8(truncatingIfNeeded: ~(isNumber | isLetter)))
    }

    /// Writes two digits a byte to `text`, whose length is twice that of `bytes`.
    @inlinable
    public static func encode(_ bytes: Span<UInt8>, into text: inout MutableSpan<UInt8>) {
        precondition(text.count == bytes.count * 2)
        for index in bytes.indices {
            text[2 * index] = digit(bytes[index] >> 4)
            text[2 * index + 1] = digit(bytes[index] & 15)
        }
    }

    /// For values that are not secret.
    public static func encode(_ bytes: Span<UInt8>) -> String {
        var text = [UInt8](repeating: 0, count: bytes.count * 2)
        var span = text.mutableSpan
        encode(bytes, into: &span)
        return String(decoding: text, as: UTF8.self)
    }

    /// Reads digits into `bytes`; false, and `bytes` means nothing, unless `text` is exactly twice as many digits.
    @inlinable
    public static func decode(_ text: Span<UInt8>, into bytes: inout MutableSpan<UInt8>) -> Bool {
        guard text.count == bytes.count * 2 else { return false }
        var wrong: UInt8 = 0
        for index in bytes.indices {
            let (high, low) = (parts(text[2 * index]), parts(text[2 * index + 1]))
            wrong |= high.wrong | low.wrong
            bytes[index] = high.value << 4 | low.value
        }
        return wrong == 0
    }

    /// The number of 16 lower-case digits from `start` on; nil for anything else.
    @inlinable
    public static func number(_ text: Span<UInt8>, at start: Int) -> UInt64? {
        guard start + 16 <= text.count else { return nil }
        var value: UInt64 = 0
        // Without a branch for each digit: bits above the low four are set by what is none.
        var wrong: UInt8 = 0
        for index in start..<start + 16 {
            let (number, letter) = (text[index] &- UInt8(ascii: "0"), text[index] &- UInt8(ascii: "a"))
            let digit = number < 10 ? number : letter < 6 ? letter &+ 10 : 0xff
            wrong |= digit
            value = value << 4 | UInt64(digit & 15)
        }
        return wrong < 16 ? value : nil
    }

    /// Appends a number as 16 digits.
    @inlinable
    public static func append(_ number: UInt64, to text: inout [UInt8]) {
        var rest = number
        for _ in 0..<16 {
            rest = rest << 4 | rest >> 60
            text.append(digit(UInt8(truncatingIfNeeded: rest & 15)))
        }
    }

    /// For values that are not secret.
    public static func decode(_ text: String) -> [UInt8]? {
        let text = text.utf8.span
        var bytes = [UInt8](repeating: 0, count: text.count / 2)
        var span = bytes.mutableSpan
        return decode(text, into: &span) ? bytes : nil
    }
}
