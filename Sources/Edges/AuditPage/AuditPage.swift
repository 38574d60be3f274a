import JSON
import Sodium

/// The auditor's page: HTML, CSS and ES modules that check a log in the browser. The broker or a static server serves them beside the
/// log's files. They request nothing else.
public enum AuditPage {
    public struct File: Sendable {
        /// Relative to the page's folder or URL.
        public let path: String
        public let bytes: [UInt8]

        public init(path: String, bytes: [UInt8]) { (self.path, self.bytes) = (path, bytes) }

        public var contentType: String {
            switch path.split(separator: ".").last {
            case "html": "text/html; charset=utf-8"
            case "css": "text/css; charset=utf-8"
            default: "text/javascript; charset=utf-8"
            }
        }
    }

    /// All files, `index.html` first.
    public static let files = [page, style] + scripts

    static let page = File(path: "index.html", bytes: PackageResources.index_html)
    static let style = File(path: "page/style.css", bytes: PackageResources.style_css)

    /// The modules. Each comes after its imports, so that they can be joined in this order.
    static let scripts = [
        ("findings", PackageResources.findings_js), ("bytes", PackageResources.bytes_js), ("tree", PackageResources.tree_js),
        ("note", PackageResources.note_js), ("source", PackageResources.source_js), ("tiles", PackageResources.tiles_js),
        ("vocabulary", PackageResources.vocabulary_js), ("entry", PackageResources.entry_js),
        ("columns", PackageResources.columns_js), ("bundles", PackageResources.bundles_js), ("pool", PackageResources.pool_js),
        ("blake2b", PackageResources.blake2b_js), ("tokenids", PackageResources.tokenids_js),
        ("search", PackageResources.search_js), ("format", PackageResources.format_js), ("clock", PackageResources.clock_js),
        ("balance", PackageResources.balance_js), ("policy", PackageResources.policy_js), ("story", PackageResources.story_js),
        ("timeline", PackageResources.timeline_js), ("figures", PackageResources.figures_js), ("head", PackageResources.head_js),
        ("growth", PackageResources.growth_js), ("auditor", PackageResources.auditor_js), ("worker", PackageResources.worker_js),
        ("dom", PackageResources.dom_js), ("charts", PackageResources.charts_js),
        ("figuresview", PackageResources.figuresview_js),
        ("lifeview", PackageResources.lifeview_js), ("steps", PackageResources.steps_js),
        ("verdict", PackageResources.verdict_js),
        ("memory", PackageResources.memory_js), ("place", PackageResources.place_js), ("trust", PackageResources.trust_js),
        ("start", PackageResources.start_js),
    ].map { File(path: "page/\($0).js", bytes: $1) }

    private static let byPath = Dictionary(uniqueKeysWithValues: files.map { ($0.path, $0) })

    /// Returns the file at a path relative to the log, or nil if there is none. The empty path is the page itself.
    public static func file(at path: String) -> File? { byPath[path.isEmpty ? page.path : path] }

    /// The value of the header `Content-Security-Policy`. `index.html` contains the same policy without `frame-ancestors`, which only works
    /// in a header.
    public static let contentSecurityPolicy = pagePolicy + "; frame-ancestors 'none'"

    static let pagePolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; worker-src 'self'; "
        + "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types threads"
}

/// One HTML file with the page and a log. It checks the log in any browser and requests nothing.
public struct AuditReport: Sendable {
    /// A file of the log.
    public typealias LogFile = (path: String, bytes: [UInt8])

    private let files: [LogFile]
    private let vkey: String?
    private let about: String

    /// - Parameters:
    ///   - vkey: the log's public key. If nil, the page asks for it.
    ///   - about: one sentence about the file, shown to the reader.
    public init(files: [LogFile], vkey: String?, about: String) {
        (self.files, self.vkey, self.about) = (files, vkey, about)
    }

    /// A multiple of three, so that only the last block needs base64 padding.
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

    /// The joined modules, without imports and exports.
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
        // Only strings contain `<`. Unescaped, it could end the script element.
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

    /// The text's hash as a source of a content security policy.
    private static func hash(_ text: String) -> String {
        "'sha256-\(Base64.standard.encode(SHA256.hash(Array(text.utf8).span).span))'"
    }

    private static func cut(_ text: String, at mark: String) -> (head: Substring, tail: Substring) {
        let range = text.firstRange(of: mark)!
        return (text[..<range.lowerBound], text[range.upperBound...])
    }
}
