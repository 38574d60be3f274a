import CLinux
import Glibc

/// A path as messages show it, always on one line.
///
/// People put secrets where a path belongs: a key's text, a passphrase, a token. So only paths that exist, or are plainly paths or names of
/// files, are shown. Of anything else only the length is.
public struct ShownPath: Sendable, Equatable, CustomStringConvertible {
    public let description: String

    /// - Parameter folder: the base of a relative path, which is shown as given. Nil: the working directory.
    public init(_ path: String, in folder: String? = nil) {
        description =
            if Self.isPlainly(path, in: folder) || Self.isFileName(path) {
                path
            } else if Self.exists(path, in: folder) {
                Self.escaped(path)
            } else if Self.isShortWord(path) {
                "<\(path.utf8.count) bytes, hidden because they could be a secret: write ./NAME to see them>"
            } else {
                "<\(path.utf8.count) bytes \(Self.shape(path))>"
            }
    }

    /// Describes text that is no path by common mistakes, without its content.
    private static func shape(_ path: String) -> String {
        let blanks: [Character] = [" ", "\t"]
        if let first = path.first, blanks.contains(first) { return "that begin with a blank: remove it" }
        if let last = path.last, blanks.contains(last) { return "that end with a blank: remove it" }
        if path.utf8.count > 1, let first = path.first, first == path.last, first == "\"" || first == "'" {
            return "in quotation marks: remove them"
        }
        return path.hasPrefix("~/") ? "that begin with ~, which only a shell replaces" : "that are not a path"
    }

    /// Extensions of the files that settings and commands name. No secret ends with one.
    private static let extensions: Set<String> = [
        "crt", "html", "json", "jwks", "key", "list", "p12", "p8", "pem", "pub", "tlog-proof", "txt", "vkey",
    ]
    private static let longestStem = 32

    /// Returns true for a file's name with a known extension, such as `AuthKey_ABC123DEFG.p8`.
    private static func isFileName(_ path: String) -> Bool {
        guard let dot = path.lastIndex(of: "."), isPlain(path.utf8), !path.utf8.contains(UInt8(ascii: "/")) else { return false }
        let stem = path[..<dot].utf8
        return extensions.contains(String(path[path.index(after: dot)...])) && (1...longestStem).contains(stem.count)
            && !(stem.count >= longestStem / 2 && stem.allSatisfy(isHexDigit))
    }

    /// Returns true for a single word. It may be a mistyped name or a passphrase.
    private static func isShortWord(_ path: String) -> Bool {
        (1...longestStem).contains(path.utf8.count) && isPlain(path.utf8) && !path.utf8.contains(UInt8(ascii: "/"))
    }

    /// A longer part may be a line of a key's text. A hash with a file extension is shorter.
    private static let longestPart = 72
    private static let fewestSecretDigits = 32

    private static func isPlainly(_ path: String, in folder: String?) -> Bool {
        guard isPlain(path.utf8) else { return false }
        let parts = path.utf8.split(separator: UInt8(ascii: "/"))
        // A single word may be anything, even after a slash.
        guard parts.count > 1, let first = parts.first else { return false }
        for part in parts {
            guard part.count <= longestPart, part.count < fewestSecretDigits || !part.allSatisfy(isHexDigit) else { return false }
        }
        return path.hasPrefix("/") || first.elementsEqual(".".utf8) || first.elementsEqual("..".utf8)
            || exists(String(decoding: first, as: UTF8.self), in: folder)
    }

    /// Excludes base64's padding.
    private static func isPlain(_ bytes: some Sequence<UInt8>) -> Bool {
        bytes.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "-")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "@"), UInt8(ascii: "+"):
                true
            default: false
            }
        }
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x46).contains(byte) || (0x61...0x66).contains(byte)
    }

    private static func exists(_ path: String, in folder: String?) -> Bool {
        guard !path.isEmpty, !path.utf8.contains(0) else { return false }
        var raw = stat()
        return unsafe lstat(folder.map { path.hasPrefix("/") ? path : $0 + "/" + path } ?? path, &raw) == 0
    }

    /// Quoted unless plain, without control sequences of a terminal.
    private static func escaped(_ path: String) -> String {
        guard !isPlain(path.utf8) else { return path }
        var text = "\""
        for scalar in path.unicodeScalars {
            switch scalar {
            case "\"", "\\": text += "\\\(scalar)"
            case ..." ", "\u{7f}"..."\u{9f}", "\u{2028}", "\u{2029}":
                text += scalar == " " ? " " : "\\u{\(String(scalar.value, radix: 16))}"
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text + "\""
    }
}
