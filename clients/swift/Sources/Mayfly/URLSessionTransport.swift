#if canImport(Darwin)
    import Foundation

    /// The transport on Apple's systems. This file is compiled there only.
    ///
    /// `URLSession` answers the broker's pings by itself. When iOS suspends the app, the answers stop, and the broker pushes to this phone.
    public final class URLSessionTransport: NSObject, Transport, URLSessionTaskDelegate {
        private let session: URLSession = {
            let configuration = URLSessionConfiguration.ephemeral
            configuration.httpShouldSetCookies = false
            configuration.httpCookieStorage = nil
            configuration.urlCredentialStorage = nil
            configuration.urlCache = nil
            return URLSession(configuration: configuration)
        }()

        public func send(_ request: TransportRequest) async throws -> TransportResponse {
            var outgoing = URLRequest(url: request.url, timeoutInterval: 15)
            outgoing.httpMethod = request.method
            outgoing.allHTTPHeaderFields = request.headers
            outgoing.httpBody = request.body
            do {
                let (body, response) = try await session.data(for: outgoing, delegate: self)
                guard let response = response as? HTTPURLResponse else { throw MayflyError.noAnswer("no HTTP") }
                return TransportResponse(response, body: body)
            } catch let error as URLError {
                try Task.checkCancellation()
                throw MayflyError(error)
            }
        }

        public func connect(_ url: URL) async throws -> any WebSocket {
            let task = session.webSocketTask(with: url)
            task.delegate = self
            task.resume()
            return URLSessionSocket(task: task)
        }

        /// Refuses redirects, also of handshakes: what follows is for the broker only.
        public func urlSession(
            _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
            newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
        ) {
            completionHandler(nil)
        }
    }

    private struct URLSessionSocket: WebSocket {
        let task: URLSessionWebSocketTask

        func send(_ text: String) async throws {
            do { try await task.send(.string(text)) } catch { throw refused ?? error }
        }

        func receive() async throws -> String {
            do {
                guard case .string(let text) = try await task.receive() else { throw URLError(.cannotParseResponse) }
                return text
            } catch {
                throw refused ?? error
            }
        }

        func close(code: Int?) async {
            guard let code else { return task.cancel() }
            task.cancel(with: URLSessionWebSocketTask.CloseCode(rawValue: code) ?? .normalClosure, reason: nil)
        }

        private var refused: (any Error)? {
            guard let response = task.response as? HTTPURLResponse, response.statusCode != 101 else { return nil }
            return WebSocketRefused(TransportResponse(response, body: Data()))
        }
    }

    extension TransportResponse {
        fileprivate init(_ response: HTTPURLResponse, body: Data) {
            self.init(
                status: response.statusCode, contentType: response.value(forHTTPHeaderField: "Content-Type"),
                retryAfter: response.value(forHTTPHeaderField: "Retry-After"), body: body)
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
            default: self = .noAnswer(why)
            }
        }
    }

    extension Client {
        /// A client on `URLSession`. The parameters are those of ``init(baseURL:environment:bundleID:transport:)``.
        public init(baseURL: URL, environment: PushEnvironment, bundleID: String? = nil) throws {
            try self.init(
                baseURL: baseURL, environment: environment, bundleID: bundleID, transport: URLSessionTransport())
        }
    }
#endif
