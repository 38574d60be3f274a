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

    /// Whether there is a variable of that name, and it is not empty.
    public static func has(_ name: String) -> Bool { unsafe getenv(name).map { unsafe $0.pointee != 0 } ?? false }

    /// Lends a variable's value to `use` and then takes it out of the environment, its bytes overwritten: `/proc/PID/environ` and programs that are
    /// started from then on have it no more. Before other threads exist that read the environment.
    /// - Returns: nil without such a variable, or with an empty one.
    public static func take<Value, Failure: Error>(
        _ name: String, _ use: (Span<UInt8>) throws(Failure) -> Value
    ) throws(Failure) -> Value? {
        guard let value = unsafe getenv(name) else { return nil }
        let count = unsafe strlen(value)
        defer {
            unsafe explicit_bzero(value, count)
            _ = unsafe unsetenv(name)
        }
        guard count > 0 else { return nil }
        let bytes = unsafe UnsafeRawBufferPointer(start: value, count: count)
        return try use(unsafe bytes.bindMemory(to: UInt8.self).span)
    }
}
