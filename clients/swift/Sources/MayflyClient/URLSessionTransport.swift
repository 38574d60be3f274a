import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// The transport of every client that isn't given another one.
///
/// `URLSession` answers the broker's pings by itself. When iOS suspends the app, the answers stop, and the broker pushes to this phone. On Linux,
/// `URLSession` has WebSockets only where the system's libcurl has them, and a server that breaks off within an answer's head ends the process.
public final class URLSessionTransport: Transport {
    private let channel = Channel()
    private let timeout: Duration

    public convenience init() { self.init(timeout: .seconds(20)) }

    /// - Parameter timeout: of a whole exchange.
    init(timeout: Duration) { self.timeout = timeout }

    public func send(_ request: TransportRequest) async throws -> TransportResponse {
        try Task.checkCancellation()
        var outgoing = URLRequest(url: request.url, timeoutInterval: 15)
        outgoing.httpMethod = request.method
        outgoing.allHTTPHeaderFields = request.headers
        outgoing.httpBody = request.body
        let task = channel.session.dataTask(with: outgoing)
        // The interval above ends with each byte. A server that sends one every second must not hold the app up.
        let watch = Task { [channel, timeout] in
            try await Task.sleep(for: timeout)
            channel.exchanges.end(task, MayflyError.noAnswer("it took too long"))
        }
        defer { watch.cancel() }
        do {
            return try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    channel.exchanges.begin(task, continuation)
                    if Task.isCancelled { channel.exchanges.end(task, CancellationError()) }
                }
            } onCancel: {
                channel.exchanges.end(task, CancellationError())
            }
        } catch let error as URLError {
            throw MayflyError(error)
        }
    }

    public func connect(_ url: URL) async throws -> any WebSocket {
        let task = channel.session.webSocketTask(with: url)
        task.maximumMessageSize = TransportResponse.largestBody
        task.resume()
        return URLSessionSocket(task: task, channel: channel)
    }
}

/// A session that keeps nothing. It ends once nobody needs it, after its tasks.
private final class Channel: Sendable {
    let exchanges = Exchanges()
    let session: URLSession

    init() {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpShouldSetCookies = false
        configuration.httpCookieStorage = nil
        configuration.urlCredentialStorage = nil
        configuration.urlCache = nil
        session = URLSession(configuration: configuration, delegate: exchanges, delegateQueue: exchanges.queue)
    }

    // A session keeps its delegate until it is invalidated.
    deinit { session.finishTasksAndInvalidate() }
}

/// The open requests of one session, each with what came of its answer.
private final class Exchanges: NSObject, URLSessionDataDelegate, @unchecked Sendable {
    private struct Exchange {
        let continuation: CheckedContinuation<TransportResponse, any Error>
        var body = Data()
    }

    #if canImport(FoundationNetworking)
        let queue = BoundedQueue()
    #else
        let queue: OperationQueue? = nil
    #endif
    private let lock = NSLock()
    private var open: [Int: Exchange] = [:]

    func begin(_ task: URLSessionDataTask, _ continuation: CheckedContinuation<TransportResponse, any Error>) {
        lock.withLock { open[task.taskIdentifier] = Exchange(continuation: continuation) }
        task.resume()
    }

    /// Ends an exchange early. Does nothing if it has ended or has not begun.
    func end(_ task: URLSessionDataTask, _ error: any Error) {
        guard finish(task, .failure(error)) else { return }
        #if canImport(FoundationNetworking)
            // This waits for the session's thread, which reads an endless answer and may wait for the delegate.
            Thread.detachNewThread { task.cancel() }
        #else
            task.cancel()
        #endif
    }

    /// Refuses redirects, also of handshakes: what follows is for the broker only.
    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        let isTooLarge = lock.withLock {
            // What still comes of an exchange that has ended is dropped.
            guard let count = open[dataTask.taskIdentifier]?.body.count else { return false }
            guard count + data.count <= TransportResponse.largestBody else { return true }
            open[dataTask.taskIdentifier]?.body += data
            return false
        }
        guard isTooLarge else { return }
        end(dataTask, MayflyError.unexpectedAnswer(status: (dataTask.response as? HTTPURLResponse)?.statusCode ?? 0))
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let result: Result<TransportResponse, any Error> =
            if let error {
                .failure(error)
            } else if let response = task.response as? HTTPURLResponse {
                .success(TransportResponse(response))
            } else {
                .failure(MayflyError.noAnswer("no HTTP"))
            }
        finish(task, result)
    }

    /// Returns false if the exchange has ended before.
    @discardableResult
    private func finish(_ task: URLSessionTask, _ result: Result<TransportResponse, any Error>) -> Bool {
        guard let exchange = lock.withLock({ open.removeValue(forKey: task.taskIdentifier) }) else { return false }
        exchange.continuation.resume(
            with: result.map { response in
                var response = response
                response.body = exchange.body
                return response
            })
        return true
    }
}

#if canImport(FoundationNetworking)
    /// Foundation on Linux reads as fast as the network can, and queues each piece for the delegate. This queue lets it wait for the delegate.
    /// Otherwise an endless answer fills the memory before it can be cancelled.
    private final class BoundedQueue: OperationQueue, @unchecked Sendable {
        private let places = DispatchSemaphore(value: 8)

        override init() {
            super.init()
            maxConcurrentOperationCount = 1
        }

        override func addOperation(_ block: @escaping @Sendable () -> Void) {
            places.wait()
            super.addOperation { [places] in
                block()
                places.signal()
            }
        }
    }
#endif

private struct URLSessionSocket: WebSocket {
    let task: URLSessionWebSocketTask
    let channel: Channel

    func send(_ text: String) async throws {
        do { try await task.send(.string(text)) } catch { throw meaning(of: error) }
    }

    func receive() async throws -> String {
        let message: URLSessionWebSocketTask.Message
        do { message = try await task.receive() } catch { throw meaning(of: error) }
        // A broker sends text only.
        guard case .string(let text) = message else { throw MayflyError.unexpectedAnswer(status: 101) }
        return text
    }

    func close(code: Int?) async {
        guard let code else { return task.cancel() }
        task.cancel(with: URLSessionWebSocketTask.CloseCode(rawValue: code) ?? .normalClosure, reason: nil)
    }

    private func meaning(of error: any Error) -> any Error {
        if let response = task.response as? HTTPURLResponse, response.statusCode != 101 {
            return WebSocketRefused(TransportResponse(response))
        }
        #if canImport(FoundationNetworking)
            if (error as? URLError)?.code == .unsupportedURL { return MayflyError.noWebSockets }
        #endif
        // Apple's systems report a message over the limit like this.
        if (error as NSError).domain == NSPOSIXErrorDomain, (error as NSError).code == Int(EMSGSIZE) {
            return MayflyError.unexpectedAnswer(status: 101)
        }
        return error
    }
}

extension TransportResponse {
    fileprivate init(_ response: HTTPURLResponse) {
        self.init(
            status: response.statusCode, contentType: response.value(forHTTPHeaderField: "Content-Type"),
            retryAfter: response.value(forHTTPHeaderField: "Retry-After"), body: Data())
    }
}

extension MayflyError {
    /// Whether the request was sent decides what may be repeated. If in doubt it was.
    fileprivate init(_ error: URLError) {
        let why = "\(error.localizedDescription) (URLError \(error.errorCode))"
        switch error.code {
        case .notConnectedToInternet, .cannotFindHost, .dnsLookupFailed, .cannotConnectToHost, .dataNotAllowed,
            .internationalRoamingOff, .callIsActive, .secureConnectionFailed, .serverCertificateUntrusted,
            .serverCertificateHasBadDate, .serverCertificateNotYetValid, .serverCertificateHasUnknownRoot,
            .appTransportSecurityRequiresSecureConnection:
            self = .unreachable(why)
        // What came is no HTTP. On Linux the code for that is `unsupportedURL`.
        case .cannotParseResponse, .unsupportedURL: self = .unexpectedAnswer(status: 0)
        default: self = .noAnswer(why)
        }
    }

    #if canImport(FoundationNetworking)
        fileprivate static let noWebSockets = MayflyError.invalidConfiguration(
            "The libcurl of this system has no WebSockets. Join rooms with `over: .reports`, or install a libcurl that has them.")
    #endif
}

extension Client {
    /// A client on `URLSession`. The parameters are those of ``init(baseURL:environment:bundleID:transport:)``.
    public init(baseURL: URL, environment: PushEnvironment, bundleID: String? = nil) throws {
        try self.init(baseURL: baseURL, environment: environment, bundleID: bundleID, transport: URLSessionTransport())
    }
}
