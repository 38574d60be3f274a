public import AuditPage

/// The demo page: two phones, and what broker and Apple know of them. `mayfly demo --stay` serves it under `/demo/`. It uses modules of the
/// auditor's page, which the broker serves under `/audit/`, and the JavaScript client, whose files
/// are links in `page`.
public enum DemoPage {
    /// All files, `index.html` first. The service worker is beside it, since a worker serves only pages below its own folder.
    /// `page/sw.js` is for `push.js`, which imports it.
    public static let files =
        [
            AuditPage.File(path: "index.html", bytes: PackageResources.index_html),
            AuditPage.File(path: "sw.js", bytes: PackageResources.sw_js),
        ]
        + [
            ("demo.css", PackageResources.demo_css), ("mayfly.js", PackageResources.mayfly_js),
            ("push.js", PackageResources.push_js), ("sw.js", PackageResources.sw_js),
            ("phone.js", PackageResources.phone_js), ("broker.js", PackageResources.broker_js),
            ("log.js", PackageResources.log_js), ("story.js", PackageResources.story_js),
        ].map { AuditPage.File(path: "page/\($0)", bytes: $1) }

    /// Returns the file at a path below `/demo/`, or nil if there is none. The empty path is the page itself.
    public static func file(at path: String) -> AuditPage.File? {
        files.first { $0.path == (path.isEmpty ? "index.html" : path) }
    }
}
