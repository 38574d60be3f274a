import Linux

/// Holds a state folder for one broker: two would sign different heads of one log.
final class FolderLock: Sendable {
    private let folder: OpenFile

    /// - Throws: `CheckFailed` when another broker holds it.
    init(_ path: String) throws {
        do {
            folder = try OpenFile(path, .read)
        } catch {
            throw CheckFailed("mayfly: the state folder \(ShownPath(path)) can't be opened: \(error)")
        }
        guard try folder.tryLock() else {
            throw CheckFailed("mayfly: another broker uses the state folder \(ShownPath(path)). Stop it, or use another folder")
        }
    }
}
