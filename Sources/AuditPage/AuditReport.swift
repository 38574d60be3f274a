import JSON
import Sodium

/// The page and a log's files as one HTML file, which checks the log wherever it is opened and asks for nothing at all.
public struct AuditReport: Sendable {
    /// A file of the log: its path, and its bytes.
    public typealias LogFile = (path: String, bytes: [UInt8])

    private let files: [LogFile]
    private let vkey: String?
    private let about: String

    /// - Parameters:
    ///   - vkey: the key to check with; nil lets the reader bring it.
    ///   - about: one sentence on what the file is, shown to the reader.
    public init(files: [LogFile], vkey: String?, about: String) {
        (self.files, self.vkey, self.about) = (files, vkey, about)
    }

    /// A multiple of three, so that base64 needs padding at the end of the last block alone.
    static let blockCount = 3 << 20

    /// Writes the file in pieces.
    public func write<Failure>(to out: ([UInt8]) throws(Failure) -> Void) throws(Failure) {
        let page = String(decoding: AuditPage.page.bytes, as: UTF8.self)
        let (style, program) = (String(decoding: AuditPage.style.bytes, as: UTF8.self), Self.program)
        let policy =
            "default-src 'none'; script-src \(Self.hash(program)); style-src \(Self.hash(style)); img-src data:; "
            + "worker-src blob:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types threads"
        let (head, tail) = Self.cut(
            page.replacing(AuditPage.pagePolicy, with: policy)
                .replacing("<link rel=\"stylesheet\" href=\"page/style.css\">", with: "<style>\(style)</style>"),
            at: "<script type=\"module\" src=\"page/start.js\"></script>")
        try out(Array("\(head)<script type=\"application/json\" id=\"log\">\(index)</script>\n".utf8))
        try writeBlocks(to: out)
        try out(Array("<script type=\"module\" id=\"program\">\(program)</script>\(tail)".utf8))
    }

    /// The modules as one: each stands after what it uses, so that imports and exports can go.
    static let program: String = AuditPage.scripts.map { module in
        String(decoding: module.bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
            .filter { !$0.hasPrefix("import ") }
            .map { $0.hasPrefix("export ") ? $0.dropFirst("export ".count) : $0 }
            .joined(separator: "\n")
    }.joined()

    private var index: String {
        let list = files.map { "[\(JSONString.quoted($0.path)),\($0.bytes.count)]" }.joined(separator: ",")
        var json = JSONWriter()
        json.add("about", about)
        json.add("vkey", orNull: vkey)
        json.add("files", encoded: Array("[\(list)]".utf8))
        // Only strings hold a `<`, which could end the script element they stand in.
        return String(decoding: json.finish(), as: UTF8.self).replacing("<", with: "\\u003c")
    }

    private func writeBlocks<Failure>(to out: ([UInt8]) throws(Failure) -> Void) throws(Failure) {
        var block: [UInt8] = []
        func flush() throws(Failure) {
            try out(Array("<script type=\"text/plain\" class=\"part\">\(Base64.standard.encode(block.span))</script>\n".utf8))
            block.removeAll(keepingCapacity: true)
        }
        for file in files {
            var rest = file.bytes[...]
            while !rest.isEmpty {
                let part = rest.prefix(Self.blockCount - block.count)
                block += part
                rest = rest.dropFirst(part.count)
                if block.count == Self.blockCount { try flush() }
            }
        }
        if !block.isEmpty { try flush() }
    }

    /// As it stands in a policy: the only inline text that a browser runs or styles with.
    private static func hash(_ text: String) -> String {
        "'sha256-\(Base64.standard.encode(SHA256.hash(Array(text.utf8).span).span))'"
    }

    private static func cut(_ text: String, at mark: String) -> (head: Substring, tail: Substring) {
        let range = text.firstRange(of: mark)!
        return (text[..<range.lowerBound], text[range.upperBound...])
    }
}
