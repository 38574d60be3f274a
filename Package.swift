// swift-tools-version: 6.2
import PackageDescription

/// One array of settings for every Swift target: Swift 6 mode, unsafe code only where it is named, warnings as errors.
let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

func c(_ name: String, pkgConfig: String? = nil, apt: String) -> Target {
    .systemLibrary(name: name, path: "Sources/Libraries/\(name)", pkgConfig: pkgConfig, providers: [.apt([apt])])
}
func room(
    _ name: String, _ dependencies: [Target.Dependency] = [], in floor: String, resources: [Resource]? = nil
) -> Target {
    .target(
        name: name, dependencies: dependencies, path: "\(floor)/\(name)", resources: resources, swiftSettings: strict)
}
/// Folders are floors: a target may use those of lower ones, and those that are listed before it on its own. Broker is a floor of its own.
let (libraries, engine, domain, edges) = ("Sources/Libraries", "Sources/Engine", "Sources/Domain", "Sources/Edges")
/// The same allocator and the same code for what is shipped and what is measured.
func program(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .executableTarget(
        name: name, dependencies: dependencies, path: "Sources/Programs/\(name)", swiftSettings: strict,
        linkerSettings: [
            // Freed memory is overwritten, in every library too (Sources/Libraries/Malloc). Swift keeps these names for itself, the linker does not.
            .unsafeFlags(["-Xlinker", "--defsym=free=mayfly_free", "-Xlinker", "--defsym=realloc=mayfly_realloc"]),
            // Bound at the start: a call bound at its first use saves all registers, and what is in them, on the stack.
            .unsafeFlags(["-Xlinker", "-z", "-Xlinker", "now"]),
            // The program's digest is in the log at each start. Without debug sections it takes 5 ms, with them 13 ms.
            .unsafeFlags(["-Xlinker", "--strip-debug"], .when(configuration: .release)),
        ])
}
func tests(_ name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .testTarget(
        name: "\(name)Tests", dependencies: [.byName(name: name)] + dependencies, path: "Tests/\(name)Tests",
        swiftSettings: strict)
}

/// Small files each: the compiler's time for one grows faster than its length. All of them take it 10 s, once (5 s in release).
let auditPage: [Resource] =
    [.embedInCode("index.html"), .embedInCode("page/style.css")]
    + [
        "auditor", "balance", "blake2b", "bundles", "bytes", "charts", "clock", "columns", "dom", "entry", "figures",
        "figuresview", "findings", "format", "growth", "head", "lifeview", "memory", "note", "place", "policy", "pool",
        "search", "source", "start", "steps", "story", "tiles", "timeline", "tokenids", "tree", "trust", "verdict",
        "vocabulary", "worker",
    ].map { .embedInCode("page/\($0).js") }

let demoPage: [Resource] =
    [.embedInCode("index.html")]
    + ["demo.css", "mayfly.js", "push.js", "sw.js", "phone.js", "broker.js", "log.js", "story.js"].map {
        .embedInCode("page/\($0)")
    }

let policies: [Resource] = ["rooms", "companion", "monitor", "calls"].map { .embedInCode("BuiltIn/\($0).json") }

let package = Package(
    name: "mayfly",
    // For the client. The broker itself runs on Linux only.
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "MayflyClient", targets: ["MayflyClient"])],
    targets: [
        // The client, for apps that add this repository by its URL. It uses no other target. Its tests are a package of their own in `clients/swift`.
        .target(name: "MayflyClient", path: "clients/swift/Sources/MayflyClient"),

        // C libraries: a module map and a shim, nothing else.
        c("CSodium", pkgConfig: "libsodium", apt: "libsodium-dev"),
        c("CSQLite", pkgConfig: "sqlite3", apt: "libsqlite3-dev"),
        // Loaded at its first use, not linked.
        c("CPostgres", apt: "libpq-dev"),
        c("COpenSSL", pkgConfig: "openssl", apt: "libssl-dev"),
        c("CNghttp2", pkgConfig: "libnghttp2", apt: "libnghttp2-dev"),
        c("CLlhttp", pkgConfig: "libllhttp", apt: "libllhttp-dev"),
        c("CWslay", apt: "libwslay-dev"),
        c("CLinux", apt: "libc6-dev"),
        c("CMalloc", apt: "libc6-dev"),

        // Wrappers: the only places that may say `unsafe`; no word of the business.
        room("Linux", ["CLinux"], in: libraries),
        // For programs, not for tests: a sanitizer brings an allocator of its own.
        room("Malloc", ["CMalloc"], in: libraries),
        room("Sodium", ["CSodium"], in: libraries),
        room("SQLite", ["CSQLite"], in: libraries),
        room("Postgres", ["CPostgres", "Linux"], in: libraries),
        room("TLS", ["COpenSSL", "Linux"], in: libraries),
        room("HTTP1", ["CLlhttp", "Linux"], in: libraries),
        room("HTTP2", ["CNghttp2", "Linux"], in: libraries),
        room("WebSocket", ["CWslay", "Linux"], in: libraries),
        room("EventLoop", ["Linux"], in: libraries),

        // The engine. Shares say who may take how much, under every layer that hands something out.
        room("Shares", ["Linux", "Sodium"], in: engine),
        room("HTTPServer", ["Shares", "EventLoop", "Linux", "TLS", "HTTP1", "HTTP2", "WebSocket"], in: engine),

        // The values that every room of the domain uses, and how they are written.
        room("Vocabulary", ["Sodium", "Linux"], in: domain),
        room("JSON", ["Vocabulary", "Linux"], in: domain),

        // The domain.
        room("Sealing", ["Vocabulary", "Sodium", "Linux"], in: domain),
        room("Policy", ["JSON", "Vocabulary", "Sodium"], in: domain, resources: policies),
        room("Ledger", ["Policy", "Vocabulary", "Sodium", "TLS", "Linux"], in: domain),
        room("Storage", ["Vocabulary", "SQLite", "Postgres", "Policy", "Ledger", "Shares", "Linux"], in: domain),
        room("WebPush", ["Sealing", "Vocabulary", "TLS", "Sodium", "Linux"], in: domain),
        room(
            "Courier", ["WebPush", "EventLoop", "Linux", "TLS", "HTTP1", "HTTP2", "Sealing", "JSON", "Vocabulary", "Sodium"],
            in: domain),
        room(
            "Broker",
            [
                "Shares", "Storage", "Sealing", "Policy", "Ledger", "WebPush", "Courier", "EventLoop", "Vocabulary", "Linux",
                "Sodium",
            ],
            in: "Sources"),

        // The edges.
        room("AuditPage", ["JSON", "Sodium"], in: edges, resources: auditPage),
        room("DemoPage", ["AuditPage"], in: edges, resources: demoPage),
        room(
            "API",
            [
                "AuditPage", "Broker", "Policy", "Ledger", "WebPush", "HTTPServer", "HTTP1", "WebSocket", "Sealing", "Linux",
                "EventLoop", "Shares", "JSON", "Vocabulary", "Sodium", "TLS",
            ], in: edges),
        room(
            "APNsSimulator",
            ["EventLoop", "Vocabulary", "Linux", "TLS", "HTTP1", "HTTP2", "WebSocket", "HTTPServer", "Sodium"], in: edges),

        // The programs.
        program(
            "mayfly",
            [
                "API", "APNsSimulator", "AuditPage", "DemoPage", "Broker", "Courier", "WebPush", "Storage", "Ledger", "Policy",
                "Sealing",
                "HTTPServer", "Shares", "EventLoop", "JSON", "Vocabulary", "TLS", "HTTP1", "WebSocket", "Linux", "Malloc",
                "Sodium",
            ]),
        program(
            "mayfly-bench",
            [
                "Broker", "Courier", "WebPush", "Storage", "Ledger", "Policy", "Sealing", "HTTPServer", "Shares", "EventLoop",
                "JSON", "Vocabulary", "TLS", "Sodium", "Linux", "Malloc",
            ]),

        // What several modules' tests make with Debian's openssl.
        room("TestCertificates", ["Linux", "TLS"], in: "Tests"),
        // The address of the PostgreSQL for tests.
        room("TestPostgres", ["Linux", "Postgres"], in: "Tests"),

        tests("Linux"), tests("Vocabulary"), tests("JSON"), tests("Sodium", ["Vocabulary"]), tests("SQLite"),
        tests("Postgres", ["Linux", "TestPostgres"]),
        tests("TLS", ["Linux", "TestCertificates"]), tests("HTTP1"),
        tests("HTTP2"), tests("WebSocket"),
        tests("Shares", ["Linux"]),
        tests("EventLoop", ["Linux"]),
        tests("HTTPServer", ["Shares", "EventLoop", "Linux", "TLS", "HTTP1", "HTTP2", "WebSocket"]),
        tests("Sealing", ["Vocabulary", "Ledger", "Sodium", "Linux"]),
        tests("WebPush", ["Sealing", "Vocabulary", "TLS", "Sodium", "Linux"]),
        tests("Policy", ["JSON", "Vocabulary", "Sodium"]),
        tests("Ledger", ["Policy", "Vocabulary", "Sodium", "Linux"]),
        tests("Storage", ["Broker", "Vocabulary", "SQLite", "Postgres", "Policy", "Ledger", "Shares", "Linux", "TestPostgres"]),
        tests(
            "Courier",
            [
                "WebPush", "EventLoop", "Linux", "TLS", "HTTP2", "Sealing", "Vocabulary", "Sodium", "APNsSimulator",
                "TestCertificates",
            ]),
        tests(
            "Broker",
            [
                "Shares", "TLS", "HTTP1", "HTTP2", "Storage", "Sealing", "Policy", "Ledger", "WebPush", "Courier", "EventLoop",
                "Vocabulary", "Linux", "Sodium", "TestPostgres",
            ]),
        tests(
            "API",
            [
                "Broker", "Ledger", "Policy", "HTTPServer", "HTTP1", "WebSocket", "Sealing", "Shares", "Linux", "EventLoop",
                "JSON", "Vocabulary", "Sodium", "TLS", "TestCertificates",
            ]),
        tests("AuditPage", ["Linux"]),
        tests(
            "APNsSimulator",
            [
                "EventLoop", "Vocabulary", "Linux", "TLS", "HTTP1", "HTTP2", "HTTPServer", "WebPush", "Sodium",
                "TestCertificates",
            ]),
    ]
)

// What libFuzzer drives (scripts/fuzz). The program has libFuzzer's `main`, so no other build may see it.
if Context.environment["FUZZ_TARGET"] != nil {
    package.targets.append(
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                "Linux", "TLS", "HTTP1", "HTTP2", "WebSocket", "HTTPServer", "Vocabulary", "JSON", "Sealing", "Policy", "Ledger",
                "WebPush", "Courier", "Broker", "API", "APNsSimulator", "Sodium",
            ],
            path: "Tests/Fuzz", exclude: ["Seeds"], swiftSettings: strict))
}
