// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "mayfly-client",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "MayflyClient", targets: ["MayflyClient"])],
    targets: [
        .target(name: "MayflyClient"),
        // HTTP and WebSocket over plain loopback sockets: few systems have a libcurl with WebSockets, which URLSession on Linux needs. It can also
        // stop, like a suspended app. Not part of the product.
        .target(name: "SocketTransport", dependencies: ["MayflyClient"], path: "Tests/SocketTransport"),
        .executableTarget(
            name: "RoomsSkeleton", dependencies: ["MayflyClient", "SocketTransport"], path: "Examples/RoomsSkeleton"),
        .testTarget(name: "MayflyClientTests", dependencies: ["MayflyClient", "SocketTransport", "RoomsSkeleton"]),
    ],
    swiftLanguageModes: [.v6]
)
