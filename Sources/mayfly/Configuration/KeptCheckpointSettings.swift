import Broker
import EventLoop
import HTTPServer
import Ledger
import Linux
import TLS

/// Where checkpoints of the log are kept outside the state folder (`--ledger-mirror`, `--not-before`); read and checked before anything
/// is opened.
struct KeptCheckpointSettings {
    private enum Mirror {
        case url(String)
        case folder(String)
    }

    private let mirror: Mirror?
    private let notBefore: (file: GivenFile, bytes: [UInt8])?

    /// No checkpoint is larger.
    private static let byteLimit = 64 << 10
    private static let timeoutMs: UInt64 = 5_000

    init(_ configuration: Configuration) throws {
        mirror = try configuration[.ledgerMirror].map(Self.mirror)
        notBefore = try configuration.file(.notBefore).map { ($0, try $0.read(limit: Self.byteLimit)) }
    }

    private static func mirror(_ given: String) throws -> Mirror {
        let name = Key.ledgerMirror.named
        if given.hasPrefix("https://") || given.hasPrefix("http://") {
            guard PlainURL.isPlain(given), PlainURL.isProtected(given) else {
                throw UsageError(
                    "\(name) must be https://, or http:// with a loopback address, in ASCII and without ?, # and @. Otherwise others could change the answer"
                )
            }
            return .url(given.hasSuffix("/") ? given : given + "/")
        }
        let file = GivenFile(given.hasPrefix("file://") ? String(given.dropFirst(7)) : given, name)
        guard try File.status(file.path)?.kind == .folder else {
            throw file.failure("is neither a folder nor a URL that begins with https://")
        }
        return .folder(file.path)
    }

    /// - Parameter loop: the one that runs the client for a mirror behind a URL.
    func checkpoints(on loop: EventLoop) throws -> [KeptCheckpoint] {
        var all: [KeptCheckpoint] = []
        if let notBefore {
            all.append(KeptCheckpoint(name: "the file that \(Key.notBefore.named) names") { notBefore.bytes })
        }
        let name = "the copy that \(Key.ledgerMirror.named) names"
        switch mirror {
        case .url(let prefix):
            let tls = prefix.hasPrefix("https:") ? try TLSContext.client(trust: .system, alpn: ["http/1.1"]) : nil
            let client = HTTPClient(loop: loop, tls: tls)
            all.append(KeptCheckpoint(name: name) { try await Self.checkpoint(prefix, client) })
        case .folder(let path):
            all.append(
                KeptCheckpoint(name: name) {
                    do {
                        return try await FolderSource(path).read(TilePath.checkpoint)
                    } catch let error as Errno { throw CheckFailed(error.reason) }
                })
        case nil: break
        }
        return all
    }

    private static func checkpoint(_ prefix: String, _ client: HTTPClient) async throws -> [UInt8]? {
        let answer = try await client.send(prefix + TilePath.checkpoint, timeoutMs: timeoutMs, maximumBytes: byteLimit)
        switch answer.status {
        case 200: return answer.body
        case 404, 410: return nil
        default: throw CheckFailed("it answered \(answer.status)")
        }
    }
}
