import Broker
import HTTP1
import HTTPServer

/// The handler of some methods at a path. One segment may be a parameter, as in `/api/approval/:request`. A final `*` matches one or more
/// segments.
struct Route<Target>: Sendable {
    typealias Answer = @Sendable (Target, Call) async throws -> HTTPResponse

    /// The methods that the route answers; nil means any method.
    fileprivate let methods: [Method]?
    fileprivate let pattern: String
    fileprivate let isCharged: Bool
    fileprivate let hasLongBody: Bool
    fileprivate let answer: Answer

    /// - Parameters:
    ///   - isCharged: true if its requests are charged as operations of the store. False for static files.
    ///   - hasLongBody: true if its callers send content that is dropped.
    init(
        _ methods: [Method]?, _ pattern: String, isCharged: Bool = true, hasLongBody: Bool = false,
        _ answer: @escaping Answer
    ) {
        self.methods = methods
        self.pattern = pattern
        self.isCharged = isCharged
        self.hasLongBody = hasLongBody
        self.answer = answer
    }
}

/// All routes of a listener. The first matching pattern decides. Patterns without parameters come first.
struct RouteTable<Target>: Sendable {
    private let fixed: [String: [Route<Target>]]
    private let variable: [(pattern: [Substring], routes: [Route<Target>])]

    init(_ routes: [Route<Target>]) {
        var fixed: [String: [Route<Target>]] = [:]
        var variable: [(pattern: [Substring], routes: [Route<Target>])] = []
        for route in routes {
            let pattern = Self.segments(of: route.pattern)
            if !pattern.contains(where: { $0 == "*" || $0.hasPrefix(":") }) {
                fixed[route.pattern, default: []].append(route)
            } else if let index = variable.firstIndex(where: { $0.pattern == pattern }) {
                variable[index].routes.append(route)
            } else {
                variable.append((pattern, [route]))
            }
        }
        (self.fixed, self.variable) = (fixed, variable)
    }

    /// The routes whose pattern matches a path.
    struct Match {
        fileprivate let routes: [Route<Target>]
        fileprivate let name: Substring

        var isCharged: Bool { routes.allSatisfy(\.isCharged) }

        func allowsLongBody(_ method: Method) -> Bool {
            routes.contains { $0.hasLongBody && $0.methods?.contains(method) ?? true }
        }

        /// - Throws: `.methodNotAllowed`, or the route's error.
        func answer(
            _ request: HTTPRequest, _ target: Target, charging charges: RequestCharges? = nil
        ) async throws -> HTTPResponse {
            // HEAD gets GET's answer. The engine omits the body.
            let method = request.method == .head ? .get : request.method
            guard let route = routes.first(where: { $0.methods?.contains(method) ?? true }) else {
                let allowed = routes.flatMap { $0.methods ?? [] }.map { "\($0.name)" }
                throw BrokerError.methodNotAllowed(allowed: allowed.joined(separator: ", "))
            }
            return try await route.answer(target, Call(request, name: name, charges))
        }
    }

    /// Returns nil if no pattern matches.
    func find(_ path: String) -> Match? {
        if let routes = fixed[path] { return Match(routes: routes, name: "") }
        let segments = Self.segments(of: path)
        for (pattern, routes) in variable {
            if let name = Self.name(in: segments, by: pattern) { return Match(routes: routes, name: name) }
        }
        return nil
    }

    private static func segments(of path: String) -> [Substring] { path.split(separator: "/", omittingEmptySubsequences: false) }

    /// Returns the parameter's segment, empty for a pattern without one, or nil if the path doesn't match.
    private static func name(in path: [Substring], by pattern: [Substring]) -> Substring? {
        let isOpen = pattern.last == "*"
        guard isOpen ? path.count >= pattern.count : path.count == pattern.count else { return nil }
        var name: Substring = ""
        for (segment, expected) in zip(path, isOpen ? pattern.dropLast() : pattern[...]) {
            if expected.hasPrefix(":") {
                name = segment
            } else if segment != expected {
                return nil
            }
        }
        return name
    }
}
