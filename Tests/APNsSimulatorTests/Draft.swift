import HTTP2

@testable import APNsSimulator

/// A request that can be changed before it is made.
struct Draft {
    var method = "POST"
    var path = "/3/device/00"
    var fields: [(name: String, value: String)] = []
    var body = #"{"aps":{}}"#

    var request: PushRequest {
        var block: HTTP2Headers = [":method": method, ":scheme": "https", ":path": path]
        for (name, value) in fields { block.append(name, value) }
        return PushRequest(block, body: Array(body.utf8))
    }
}
