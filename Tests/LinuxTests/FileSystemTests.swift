import Linux
import Testing

@Suite struct FileSystemTests {
    @Test func syncsWhatHoldsAFolder() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let bytes: [UInt8] = [1, 2, 3]
        let system = try FileSystem(folder)
        try File.write("\(folder)/a", bytes.span, mode: 0o600)
        try system.sync()
        #expect(try File.read("\(folder)/a", limit: 10) == bytes)
    }

    @Test func wantsAFolder() {
        #expect(throws: Errno.self) { _ = try FileSystem("/nowhere/at/all") }
        #expect(throws: Errno.self) { _ = try FileSystem("/etc/hostname") }
    }
}
