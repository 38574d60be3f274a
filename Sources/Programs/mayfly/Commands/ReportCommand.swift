import AuditPage
import Ledger
import Linux
import Vocabulary

/// `mayfly audit report` and `mayfly audit page`: write the auditor's page with a log inside, or to be served beside a log.
enum ReportCommand {
    /// A browser loads the whole file. Base64 adds a third, and the page makes a copy.
    private static let limit = 64 << 20

    static func run(_ words: [String]) async throws {
        let configuration = try Configuration(words, keys: [], options: ["key", "html"])
        let (operands, key) = (configuration.operands, try configuration.option("key"))
        switch (operands.first, operands.count, try configuration.option("html")) {
        case ("report", 2, let html?): try await report(operands[1], html, key: key)
        case ("report", 2, nil): throw UsageError("--html is missing: the file to write")
        case ("page", 2, nil): try writePage(operands[1], key: key)
        case ("page", _, nil): throw UsageError("audit page needs one DIR")
        default: throw UsageError("audit report needs one DIR or URL, and --html FILE")
        }
    }

    private static func report(_ place: String, _ file: String, key text: String?) async throws {
        let source = ShownSource(try AuditCommand.source(place))
        var key = try text.map { try AuditCommand.verifierKey($0).description }
        if key == nil { key = foundKey(try await source.read("ledger.vkey")) }
        let files = try await copy(source)
        let about = "This file contains the log as it was read at \(timestamp()). Later entries are not in it."
        let beside = file + ".new"
        do {
            if try File.status(beside, followLinks: false) != nil { try File.remove(beside) }
            let out = try OpenFile(beside, .createNew(mode: 0o644))
            var end = 0
            try AuditReport(files: files, vkey: key, about: about).write { bytes throws(Errno) in
                try out.write(bytes.span, at: end)
                end += bytes.count
            }
            try File.rename(beside, to: file)
        } catch {
            throw CheckFailed("\(ShownPath(file)) can't be written: \(error)")
        }
        Terminal.out(
            "\(ShownPath(file)): open it in a browser to check the log\(key == nil ? "; the page will ask for the key" : "")")
    }

    private static func copy(_ source: any LogSource) async throws -> [(path: String, bytes: [UInt8])] {
        do {
            return try await LogCopy(source, limit: limit).files()
        } catch LogCopyError.tooLarge(let size) {
            throw CheckFailed(
                "the log has \(size): a report may have \(limit >> 20) MiB at most. Publish the page beside the log instead "
                    + "(mayfly audit page DIR), or use mayfly audit verify, which has no limit")
        } catch let error as LogCopyError { throw CheckFailed("\(error)") }
    }

    /// The key beside the log. It proves little, because the log's author could have written it.
    private static func foundKey(_ bytes: [UInt8]?) -> String? {
        bytes.flatMap { VerifierKey(String(decoding: $0, as: UTF8.self))?.description }
    }

    private static func timestamp() -> String {
        Timestamp.text(Clock.wallMs).prefix(16).replacing("T", with: " ") + " UTC"
    }

    private static func writePage(_ folder: String, key text: String?) throws {
        var files = AuditPage.files.map { ($0.path, $0.bytes) }
        if let text { files.append(("ledger.vkey", Array("\(try AuditCommand.verifierKey(text))\n".utf8))) }
        do throws(Errno) {
            for (name, bytes) in files {
                let path = "\(folder)/\(name)"
                try File.makeFolder(File.folder(of: path), mode: 0o755)
                try File.replaceDurably(path, bytes.span, mode: 0o644)
            }
        } catch {
            throw CheckFailed("\(ShownPath(folder)) can't be written: \(error.reason)")
        }
        let hasKey = File.exists("\(folder)/ledger.vkey")
        let noKey = hasKey ? "" : ". It has no ledger.vkey, so visitors need the key: add it with --key"
        Terminal.out("\(ShownPath(folder))/index.html: the auditor's page, for a log whose checkpoint is beside it\(noKey)")
    }
}
