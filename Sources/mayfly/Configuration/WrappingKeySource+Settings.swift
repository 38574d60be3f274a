import Sealing

extension WrappingKeySource {
    /// What `--wrapping-key` names; nil where the key file is not wrapped. Nothing is read yet.
    init?(_ configuration: Configuration) throws {
        guard let text = configuration[.wrappingKey] else { return nil }
        guard text.hasPrefix("command:") else {
            self = .file(text)
            return
        }
        // No shell: what stands there is what is run.
        let words = text.dropFirst("command:".count).split(separator: " ").map(String.init)
        guard let path = words.first, path.hasPrefix("/") else {
            throw configuration.invalid(
                .wrappingKey,
                "must be a command: a program's absolute path and words separated by spaces. No shell is used; for more write a script"
            )
        }
        self = .command(path: path, arguments: Array(words.dropFirst()))
    }

    /// The key, or why there is none.
    func get() throws -> WrappingKey {
        do {
            return try read()
        } catch { throw CommandFailed("\(Key.wrappingKey.named): \(error)") }
    }
}
