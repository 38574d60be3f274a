import Testing

@testable import Ledger

@Suite struct LogCopyTests {
    static let log = VerifierTests.log
    static let limit = 64 << 20

    static func copy(_ source: MemorySource, limit: Int = limit) async throws -> [String: [UInt8]] {
        let files = try await LogCopy(source, limit: limit).files()
        return Dictionary(uniqueKeysWithValues: files.map { ($0.path, $0.bytes) })
    }

    @Test func copyIsVerifiedAsTheLogIs() async throws {
        let copy = MemorySource(files: try await Self.copy(Self.log.source))
        let key = PublishedLog.key.verifierKey
        let reports = (try await Verifier(Self.log.source, key: key).verify(), try await Verifier(copy, key: key).verify())
        #expect("\(reports.0)" == "\(reports.1)")
    }

    /// The verifier says what is missing or damaged.
    @Test func copyOfADamagedLogIsAsDamaged() async throws {
        let whole = try await Self.copy(Self.log.source)
        for path in whole.keys where path != TilePath.checkpoint {
            var source = Self.log.source
            source.files[path] = nil
            let copied = try await Self.copy(source)
            #expect(copied[path] == nil && copied.allSatisfy { whole[$0.key] == $0.value }, "\(path)")
            source.files[path] = [0xff]
            #expect(try await Self.copy(source)[path] == [0xff])
        }
    }

    @Test func logWithoutCheckpointIsRefused() async {
        for bytes in [nil, [UInt8]("nonsense".utf8)] {
            var source = Self.log.source
            source.files[TilePath.checkpoint] = bytes
            await #expect(throws: LogCopyError.noCheckpoint) { try await Self.copy(source) }
        }
    }

    @Test func logBeyondTheLimitIsRefused() async throws {
        let bytes = try await Self.copy(Self.log.source).values.map(\.count).reduce(0, +)
        #expect(try await !Self.copy(Self.log.source, limit: bytes).isEmpty)
        for limit in [bytes - 1, 32] {
            let error = await #expect(throws: LogCopyError.self) { try await Self.copy(Self.log.source, limit: limit) }
            #expect(error != .noCheckpoint)
        }
    }
}
