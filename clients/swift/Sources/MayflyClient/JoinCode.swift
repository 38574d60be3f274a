/// A short code that lets one other person into a room, once. The app passes it on by any channel.
public struct JoinCode: Hashable, Sendable {
    let secret: Secret

    /// Crockford's base 32: no I, L, O and U, which people confuse with other letters and digits.
    private static let alphabet = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ")

    /// Makes a random code of `length` characters with 5 bits each. The default has 50 bits.
    ///
    /// - Parameter length: 8 to 64. A broker limits how many rooms with shorter codes may wait.
    public static func random(length: Int = 10) -> JoinCode {
        precondition((8...64).contains(length), "a random join code has 8 to 64 characters")
        var generator = SystemRandomNumberGenerator()
        return JoinCode(secret: Secret(String((0..<length).map { _ in alphabet.randomElement(using: &generator)! })))
    }

    /// Reads a random code as people type it: in any case, with spaces and hyphens, O for 0, I or L for 1.
    ///
    /// Returns nil if `typed` is no such code of `length` characters.
    public init?(typed: String, length: Int = 10) {
        var characters: [Character] = []
        for character in typed where !character.isWhitespace && !"-‐‑–—".contains(character) {
            let meant: Character =
                switch character {
                case "o", "O": "0"
                case "i", "I", "l", "L": "1"
                // Not for other alphabets: "ß" would become two characters.
                case "a"..."z": Character(character.uppercased())
                default: character
                }
            guard Self.alphabet.contains(meant) else { return nil }
            characters.append(meant)
        }
        guard characters.count == length else { return nil }
        secret = Secret(String(characters))
    }

    /// Uses a code of the app's own, as it is.
    ///
    /// Returns nil unless it is 4 to 64 visible ASCII characters.
    public init?(custom text: String) {
        guard (4...64).contains(text.utf8.count), text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else { return nil }
        secret = Secret(text)
    }

    private init(secret: Secret) { self.secret = secret }

    /// The code as it is sent to the broker.
    public var text: String { secret.value }

    /// The code in two groups with a hyphen between them, for the screen: `7K3M9-QXW2D`.
    public var display: String {
        let half = (text.count + 1) / 2
        return "\(text.prefix(half))-\(text.dropFirst(half))"
    }
}
