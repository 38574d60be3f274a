/// Hexadecimal digits: lower case for output, either case for input. The time depends only on the number of bytes.
public enum Hex {
    /// Returns the digit for a value of 0 to 15.
    @inlinable
    public static func digit(_ value: UInt8) -> UInt8 {
        // No branch and no table. 39 is the distance from behind "9" to "a".
        let isLetter = (9 &- value) >> 7
        return UInt8(ascii: "0") &+ value &+ isLetter &* 39
    }

    /// Returns the value of a digit, or nil for anything else.
    @inlinable
    public static func value(_ digit: UInt8) -> UInt8? {
        let (value, wrong) = parts(digit)
        return wrong == 0 ? value : nil
    }

    /// Returns the value of a digit and 0, or an undefined value and a number above 0. Has no branch.
    @inlinable
    static func parts(_ digit: UInt8) -> (value: UInt8, wrong: UInt8) {
        let number = UInt16(digit) &- 0x30
        let letter = UInt16(digit | 0x20) &- 0x61
        // All ones if the number is below ten, or the letter below six.
        let isNumber = UInt16(truncatingIfNeeded: (Int32(number) &- 10) >> 16)
        let isLetter = UInt16(truncatingIfNeeded: (Int32(letter) &- 6) >> 16)
        let value = number & isNumber | (letter &+ 10) & isLetter
        return (UInt8(truncatingIfNeeded: value), UInt8(truncatingIfNeeded: ~(isNumber | isLetter)))
    }

    /// Writes two digits per byte to `text`. Its length must be twice that of `bytes`.
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

    /// Decodes digits into `bytes`.
    /// - Returns: false, with undefined `bytes`, unless `text` has exactly twice as many digits.
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

    /// Parses the 16 lower-case digits from `start` on. Returns nil for anything else.
    @inlinable
    public static func number(_ text: Span<UInt8>, at start: Int) -> UInt64? {
        guard start + 16 <= text.count else { return nil }
        var value: UInt64 = 0
        // Errors are collected without a branch: a byte that is no digit sets bits above the low four.
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
