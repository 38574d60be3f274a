import Broker
import Ledger
import Linux
import Policy
import Sealing
import Storage
import Vocabulary

/// `mayfly apns find`: what became of a push, by the `apns-id` that Apple or an app names.
enum DeliveryCommand {
    static func find(_ apnsID: String, _ configuration: Configuration) async throws {
        let state = configuration.state
        let keys = try KeyRing.load(
            path: state.ratchetKey, wrapping: try WrappingKeySource(configuration)?.get(),
            longestLifeSeconds: UInt64(try PolicyCommand.inForce(configuration).longestLifeSeconds))
        guard let search = DeliverySearch(apnsID, keys: keys) else {
            throw UsageError("the apns-id is malformed. It must be a UUID: 32 hexadecimal digits in five groups")
        }
        let isBrokers = isOfBroker(apnsID)
        let entries = isBrokers ? try await found(search, state) : []
        let json = configuration.has("json")
        guard !entries.isEmpty else {
            if json { Terminal.out("[]") }
            throw CheckFailed(isBrokers ? notFound : foreign)
        }
        if json {
            return Terminal.out("[" + entries.map { String(decoding: $0.encoded, as: UTF8.self) }.joined(separator: ",") + "]")
        }
        for entry in entries { Terminal.out(Self.line(entry)) }
        guard entries.count == 1 else { return }
        Terminal.out("the outcome is not published yet: the push is under way, or the next window will contain it")
    }

    /// Times are starts of windows.
    private static func line(_ entry: Entry) -> String {
        let at = Timestamp.text(entry.atMs)
        return switch entry.op {
        case .tokenOpened(_, let job, let template): "\(at)  accepted: template \(template), job \(job)"
        case .pushDelivered(_, let status): "\(at)  delivered: Apple has it (status \(status))"
        case .pushFailed(_, let status, let reason):
            "\(at)  not delivered: \(reason.rawValue) (status \(status)). `mayfly apns explain \(reason.rawValue)` explains it"
        default: entry.sentence
        }
    }

    /// The job's entries, oldest first.
    private static func found(_ search: DeliverySearch, _ state: StateFolder) async throws -> [Entry] {
        let key = try SigningKey.load(state.ledgerKey).verifierKey
        let source = FolderSource(state.ledger)
        guard let bytes = try await source.read("checkpoint"), let head = SignedNote(bytes)?.checkpoint(signedBy: key) else {
            throw CommandFailed("\(state.shown(state.ledger)) has no checkpoint signed by this state folder's key")
        }
        let now = Clock.wallMs
        var outcomes: [JobID: Entry] = [:]
        do throws(VerificationFailure) {
            var tree = try await SignedTree(source, head: head)
            var bundle = tree.bundles
            while bundle > 0 {
                bundle -= 1
                for text in try await tree.canonicalEntries(bundle: bundle).reversed() {
                    guard let entry = try? Entry(canonical: Array(text.utf8).span) else { continue }
                    if entry.atMs < search.earliestMs { return [] }
                    switch entry.op {
                    case .pushDelivered(let job, _), .pushFailed(let job, _, _): outcomes[job] = entry
                    case .tokenOpened(_, let job, _):
                        if search.isOf(job, nowMs: now) { return [entry] + (outcomes[job].map { [$0] } ?? []) }
                    default: break
                    }
                }
            }
        } catch { throw CheckFailed("bad: \(error)") }
        return []
    }

    /// Whether a UUID can be an `apns-id` of a broker's push. Those are of version 8.
    private static func isOfBroker(_ uuid: String) -> Bool { uuid.dropFirst(14).first == "8" }

    private static let foreign = """
        this is not the apns-id of a broker's push: those have an 8 after the second hyphen. Mayfly doesn't store apns-unique-ids, Apple's ids of \
        deliveries. Look one up in Apple's Push Notifications Console, or find the push by its apns-id, which works for seven to twelve minutes. \
        Pushes of `mayfly apns send` are not recorded.
        """

    private static let notFound = """
        no recent push has this apns-id. A push can be found until the key of its apns-id is destroyed, seven to \
        twelve minutes after it was accepted. A push of the log's present window can be found once that window is published.
        """
}
