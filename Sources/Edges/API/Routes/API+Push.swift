import Broker
import HTTPServer
import JSON
import WebPush

/// The call that an app makes before it subscribes to Web Push.
extension API {
    /// Says which key a browser subscribes with. Names nothing of Apple's: nobody needs it, and it would name the apps.
    func pushServices() -> HTTPResponse {
        let service = broker.settings.subscribable
        var response = HTTPResponse.json(200) { json in
            guard let service else { return }
            json.add("webPush") { json in
                json.add("applicationServerKey", service.current.publicKey)
                if let previous = service.keys.dropFirst().first { json.add("previous", previous.publicKey) }
                json.add("longest", PushEndpoint.longest)
            }
        }
        // Pages must learn at once that an operator turned Web Push on, so they may not cache an empty answer.
        response.headers.append(.init("Cache-Control", service == nil ? "no-store" : "public, max-age=3600"))
        return response
    }
}
