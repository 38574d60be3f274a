import Foundation
import MayflyClient

nonisolated extension Client {
    /// The broker, on a phone.
    public static let onPhone: Client = {
        // Apple's tokens for Xcode's builds are those of its sandbox.
        #if DEBUG
            let environment = PushEnvironment.sandbox
        #else
            let environment = PushEnvironment.production
        #endif
        return try! Client(baseURL: URL(string: "https://push.example.org")!, environment: environment)
    }()
}
