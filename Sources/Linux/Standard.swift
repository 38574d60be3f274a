import Glibc

/// The standard streams, written at once and whole. A reader that went away is no error.
public enum Standard {
    public static func output(_ text: String) { write(text, to: 1) }
    public static func error(_ text: String) { write(text, to: 2) }

    private static func write(_ text: String, to descriptor: Int32) {
        var text = text
        text.withUTF8 { bytes in
            var start = 0
            while start < bytes.count {
                let written = unsafe Glibc.write(descriptor, bytes.baseAddress! + start, bytes.count - start)
                if written < 0 && errno == EINTR { continue }
                guard written > 0 else { return }
                start += written
            }
        }
    }
}
