/// The auditor's page: HTML, CSS and ES modules that check a log in the browser. They lie beside the log's files, on the broker or on
/// any static server, and ask for nothing else.
public enum AuditPage {
    public struct File: Sendable {
        /// Below the log's folder or URL.
        public let path: String
        public let bytes: [UInt8]

        public var contentType: String {
            switch path.split(separator: ".").last {
            case "html": "text/html; charset=utf-8"
            case "css": "text/css; charset=utf-8"
            default: "text/javascript; charset=utf-8"
            }
        }
    }

    /// All of them, `index.html` first.
    public static let files = [page, style] + scripts

    static let page = File(path: "index.html", bytes: PackageResources.index_html)
    static let style = File(path: "page/style.css", bytes: PackageResources.style_css)

    /// The modules, each after those that it imports: in this order they are also one program.
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

    /// The file at a path below the log; the empty path is the page itself. Nil if there is none.
    public static func file(at path: String) -> File? { byPath[path.isEmpty ? page.path : path] }

    /// What the page may do, for servers that can say so; `index.html` says the same but for `frame-ancestors`, which only a header can.
    public static let contentSecurityPolicy = pagePolicy + "; frame-ancestors 'none'"

    static let pagePolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; worker-src 'self'; "
        + "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types threads"
}
