import CLinux
import Glibc

/// The process's environment.
public enum Environment {
    /// Every variable, in the order the system gives them; values that are no UTF-8 are repaired.
    public static var all: [(name: String, value: String)] {
        var variables: [(name: String, value: String)] = []
        var next = unsafe mayfly_environment()
        while let entry = unsafe next?.pointee {
            let text = unsafe String(cString: entry)
            if let sign = text.firstIndex(of: "=") {
                variables.append((String(text[..<sign]), String(text[text.index(after: sign)...])))
            }
            unsafe next = unsafe next?.advanced(by: 1)
        }
        return variables
    }
}
