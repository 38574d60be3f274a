// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "mayfly-client",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "Mayfly", targets: ["Mayfly"])],
    targets: [
        .target(name: "Mayfly"),
        // HTTP and WebSocket over plain loopback sockets: Linux has no URLSessionWebSocketTask. Not part of the product.
        .target(name: "SocketTransport", dependencies: ["Mayfly"], path: "Tests/SocketTransport"),
        .executableTarget(
            name: "RoomsSkeleton", dependencies: ["Mayfly", "SocketTransport"], path: "Examples/RoomsSkeleton"),
        .testTarget(name: "MayflyTests", dependencies: ["Mayfly", "SocketTransport", "RoomsSkeleton"]),
    ],
    swiftLanguageModes: [.v6]
)
