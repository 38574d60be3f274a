// swift-tools-version: 6.0
import PackageDescription

let library = Target.target(name: "MayflyClient")
let tests = Target.testTarget(name: "MayflyClientTests", dependencies: ["MayflyClient", "SocketTransport"])
var targets: [Target] = [
    library,
    // HTTP and WebSocket over plain loopback sockets: few systems have a libcurl with WebSockets, which URLSession on Linux needs. It can also stop,
    // like a suspended app. Not part of the product.
    .target(name: "SocketTransport", dependencies: ["MayflyClient"], path: "Tests/SocketTransport"),
    tests,
]

#if os(Linux)
    // Checks the code for Apple's systems without a Mac: on Linux it is a module of its own, which tests and examples compile against stubs of Apple's
    // frameworks. The product has none of this.
    let frameworks = ["ActivityKit", "AVFAudio", "CallKit", "PushKit", "Security", "SwiftUI", "UIKit", "UserNotifications"]
    let dependencies = (["MayflyClient"] + frameworks).map { Target.Dependency(stringLiteral: $0) }
    let settings = [SwiftSetting.define("MAYFLY_APPLE_STUBS")]
    library.exclude = ["Apple"]
    targets += frameworks.map { name in
        let needed: [Target.Dependency] = name == "CallKit" ? ["AVFAudio"] : name == "SwiftUI" ? ["UIKit"] : []
        return .target(name: name, dependencies: needed, path: "Tests/AppleStubs/\(name)")
    }
    targets += [
        .target(name: "_Testing_UIKit", path: "Tests/AppleStubs/_Testing_UIKit"),
        .target(
            name: "MayflyApple", dependencies: dependencies, path: "Sources/MayflyClient/Apple", swiftSettings: settings),
        .target(
            name: "ExampleSupport", dependencies: dependencies + ["MayflyApple"], path: "Examples/Shared", swiftSettings: settings
        ),
    ]
    let examples = ["RoomsSkeleton", "CompanionSkeleton", "MonitorSkeleton", "CallsSkeleton"]
    targets += examples.map { name in
        .executableTarget(
            name: name, dependencies: dependencies + ["MayflyApple", "ExampleSupport", "SocketTransport"],
            path: "Examples/\(name)",
            swiftSettings: settings)
    }
    tests.dependencies +=
        dependencies.dropFirst() + ["MayflyApple", "ExampleSupport", "_Testing_UIKit"]
        + examples.map { Target.Dependency(stringLiteral: $0) }
    tests.swiftSettings = settings
#endif

let package = Package(
    name: "mayfly-client",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "MayflyClient", targets: ["MayflyClient"])],
    targets: targets,
    swiftLanguageModes: [.v6]
)
