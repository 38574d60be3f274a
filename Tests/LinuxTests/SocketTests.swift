import Linux
import Testing

@Suite struct SocketTests {
    @Test(arguments: [
        ("127.0.0.1:8787", "127.0.0.1:8787", true), ("[::1]:80", "[::1]:80", true), ("localhost:1", "127.0.0.1:1", true),
        ("0.0.0.0:0", "0.0.0.0:0", false), ("[2001:db8::5]:65535", "[2001:db8::5]:65535", false),
        ("unix:/run/m.sock", "unix:/run/m.sock", true), ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:5", true),
        ("[::ffff:10.0.0.1]:5", "[::ffff:10.0.0.1]:5", false),
    ])
    func parses(text: String, printed: String, loopback: Bool) throws {
        let address = try #require(SocketAddress(parsing: text))
        #expect(address.description == printed)
        #expect(address.isLoopback == loopback)
    }

    @Test(arguments: [
        "", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:+1", "127.0.0.1:-1", "127.0.0.1: 1", "::1:80",
        "[::1]",
        "[127.0.0.1]:80", "example.org:80", "127.0.0.1.5:80", "127.1:80", "[::1:80", "unix:", "127.0.0.1:0000080",
        "127.0.0.1\0:80",
        "unix:" + String(repeating: "x", count: 108),
    ])
    func refuses(text: String) {
        #expect(SocketAddress(parsing: text) == nil)
    }

    @Test func mappedAddressesPrintTheirIPv4Host() {
        #expect(SocketAddress(parsing: "[::ffff:192.0.2.1]:5")?.host == "192.0.2.1")
    }

    @Test func resolvesNumericHostsAndRefusesInvalidNames() throws {
        #expect(try SocketAddress.resolve(host: "127.0.0.1", port: 5) == [.v4(0x7f00_0001, port: 5)])
        #expect(throws: ResolutionError.self) { try SocketAddress.resolve(host: "name with spaces", port: 5) }
    }

    @Test(arguments: ["127.0.0.1:0", "[::1]:0", "unix"])
    func carriesBytesBothWays(text: String) throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let address = try #require(SocketAddress(parsing: text == "unix" ? "unix:\(folder)/s" : text))
        let listener = try Socket.listen(on: address)
        if try listener.accept() != nil { Issue.record("a connection before anyone connected") }
        let client = try Socket.connect(to: listener.localAddress())
        guard let accepted = try Self.acceptEventually(listener) else {
            Issue.record("no connection came")
            return
        }
        if text != "unix" { #expect(try accepted.peer == client.localAddress()) }
        let server = accepted.take()
        #expect(client.pendingError() == nil)

        #expect(try client.write(Array("ping".utf8).span) == 4)
        var buffer = [UInt8](repeating: 0, count: 16)
        var span = buffer.mutableSpan
        #expect(try server.read(into: &span) == 4)
        #expect(try server.read(into: &span) == nil)
        #expect(buffer.prefix(4).elementsEqual("ping".utf8))
        client.finishWriting()
        var rest = buffer.mutableSpan
        #expect(try server.read(into: &rest) == 0)
        #expect(try server.write(Array("pong!".utf8).span) == 5)
        #expect(try client.read(into: &rest) == 5)
    }

    @Test func writingToAClosedPeerThrows() throws {
        let pair = try Socket.pair()
        let first = Self.dropSecond(pair)
        let error = try #require(throws: Errno.self) { try first.write([1].span) }
        #expect(error.isConnectionLost)
    }

    @Test func aFullSocketWouldBlock() throws {
        let pair = try Socket.pair()
        let block = [UInt8](repeating: 7, count: 65536)
        var taken = 0
        while let count = try pair.first.write(block.span) { taken += count }
        #expect(taken > 0)
    }

    @Test func aRefusedConnectionIsReported() throws {
        let port = try Self.unusedPort()
        var refused = false
        do {
            let client = try Socket.connect(to: .v4(0x7f00_0001, port: port))
            var error = client.pendingError()
            for _ in 0..<1000 where error == nil { error = client.pendingError() }
            refused = error?.isRefused == true
        } catch { refused = error.isRefused }
        #expect(refused)
    }

    @Test func anAddressInUseIsRefused() throws {
        let first = try Socket.listen(on: .v4(0x7f00_0001, port: 0))
        let address = try first.localAddress()
        let error = try #require(throws: Errno.self) { _ = try Socket.listen(on: address) }
        #expect(error.isAddressInUse)
    }

    @Test func aLeftoverUnixPathIsReplacedButAFileIsNot() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        do { _ = try Socket.listen(on: .unix("\(folder)/s")) }
        #expect(File.exists("\(folder)/s"))
        _ = try Socket.listen(on: .unix("\(folder)/s"))
        try File.write("\(folder)/f", [1].span, mode: 0o600)
        do throws(Errno) {
            _ = try Socket.listen(on: .unix("\(folder)/f"))
            Issue.record("a file that is no socket was replaced")
        } catch {
            #expect(!error.isAddressInUse)
        }
        // A path with a living listener is not replaced.
        let living = try Socket.listen(on: .unix("\(folder)/l"), mode: 0o640)
        #expect(try #require(try File.status("\(folder)/l")).mode & 0o777 == 0o640)
        do throws(Errno) {
            _ = try Socket.listen(on: .unix("\(folder)/l"))
            Issue.record("a living process's path was taken")
        } catch {
            #expect(error.isAddressInUse)
        }
        let client = try Socket.connect(to: .unix("\(folder)/l"))
        #expect(client.pendingError() == nil)
        _ = try living.accept()
    }

    private static func unusedPort() throws -> UInt16 {
        let listener = try Socket.listen(on: .v4(0x7f00_0001, port: 0))
        return try #require(try listener.localAddress().port)
    }

    private static func dropSecond(_ pair: consuming SocketPair) -> Socket { pair.first }

    private static func acceptEventually(_ listener: borrowing Socket) throws -> AcceptedSocket? {
        for _ in 0..<100_000 { if let accepted = try listener.accept() { return accepted } }
        return nil
    }
}
