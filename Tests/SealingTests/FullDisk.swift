import Linux

/// A small file system of its own that can be filled up. Only root may mount one.
final class FullDisk {
    let folder: String
    private var fillings = 0

    static let isPossible: Bool = (try? FullDisk()) != nil

    init() throws {
        folder = try File.makeTemporaryFolder()
        guard try Self.run("/usr/bin/mount", ["-t", "tmpfs", "-o", "size=64k,mode=700", "mayfly-test", folder]) else {
            try File.removeFolder(folder)
            throw Errno(code: 1, call: "mount \(folder)")
        }
    }

    deinit {
        if (try? Self.run("/usr/bin/umount", [folder])) == true { try? File.removeFolder(folder) }
    }

    /// Writes until nothing more goes in.
    func fill() throws {
        let block = [UInt8](repeating: 1, count: 4096)
        while true {
            fillings += 1
            do throws(Errno) {
                try File.write("\(folder)/filling.\(fillings)", block.span, mode: 0o600)
            } catch {
                guard error.isOutOfSpace else { throw error }
                return
            }
        }
    }

    func free() throws { try File.remove("\(folder)/filling.1") }

    private static func run(_ program: String, _ arguments: [String]) throws -> Bool {
        try ChildProcess.spawn(program, arguments: arguments, errors: .discard).wait() == .status(0)
    }
}
