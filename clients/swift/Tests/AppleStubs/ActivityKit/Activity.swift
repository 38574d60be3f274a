@_exported import Foundation

// Stands for Apple's ActivityKit on Linux. What begins with `stub` plays iOS.

public protocol ActivityAttributes: Decodable, Encodable {
    associatedtype ContentState: Decodable, Encodable, Hashable
}

public enum ActivityState: Codable, Hashable, Sendable { case active, ended, dismissed, stale }

public struct PushType: Hashable, Sendable { public static let token = PushType() }

public struct ActivityUIDismissalPolicy: Hashable, Sendable {
    public static let `default` = ActivityUIDismissalPolicy()
    public static let immediate = ActivityUIDismissalPolicy()
}

public struct ActivityContent<State: Decodable & Encodable & Hashable>: Hashable {
    public var state: State
    public var staleDate: Date?
    public var relevanceScore: Double
    public init(state: State, staleDate: Date?, relevanceScore: Double = 0.0) {
        (self.state, self.staleDate, self.relevanceScore) = (state, staleDate, relevanceScore)
    }
}

extension ActivityContent: Sendable where State: Sendable {}

public struct ActivityAuthorizationInfo {
    public init() {}
    public var areActivitiesEnabled: Bool { true }
}

public class Activity<Attributes: ActivityAttributes>: Identifiable {
    public typealias ContentState = Attributes.ContentState

    public struct PushTokenUpdates: AsyncSequence, Sendable {
        public typealias Element = Data
        let stream: AsyncStream<Data>
        public func makeAsyncIterator() -> AsyncStream<Data>.Iterator { stream.makeAsyncIterator() }
    }

    public struct ActivityStateUpdates: AsyncSequence, Sendable {
        public typealias Element = ActivityState
        let stream: AsyncStream<ActivityState>
        public func makeAsyncIterator() -> AsyncStream<ActivityState>.Iterator { stream.makeAsyncIterator() }
    }

    public let id = UUID().uuidString
    public let attributes: Attributes
    public var content: ActivityContent<ContentState> { lock.withLock { shown } }
    public var activityState: ActivityState { lock.withLock { state } }
    public var pushTokenUpdates: PushTokenUpdates { PushTokenUpdates(stream: tokens.stream) }
    public var activityStateUpdates: ActivityStateUpdates { ActivityStateUpdates(stream: states.stream) }

    public static var activities: [Activity<Attributes>] {
        stubLock.withLock { stubActivities.compactMap { $0 as? Activity<Attributes> }.filter { $0.activityState == .active } }
    }

    public static func request(
        attributes: Attributes, content: ActivityContent<Attributes.ContentState>, pushType: PushType? = nil
    ) throws -> Activity<Attributes> {
        let activity = Activity(attributes, content)
        stubLock.withLock { stubActivities.append(activity) }
        return activity
    }

    public func update(_ content: ActivityContent<Activity<Attributes>.ContentState>) async { lock.withLock { shown = content } }

    public func end(
        _ content: ActivityContent<Activity<Attributes>.ContentState>?, dismissalPolicy: ActivityUIDismissalPolicy = .default
    ) async {
        lock.withLock {
            if let content { shown = content }
            state = .ended
        }
        states.continuation.yield(.ended)
        states.continuation.finish()
        tokens.continuation.finish()
    }

    // MARK: What plays iOS

    private let lock = NSLock()
    private var shown: ActivityContent<ContentState>
    private var state = ActivityState.active
    private let tokens = AsyncStream<Data>.makeStream()
    private let states = AsyncStream<ActivityState>.makeStream()

    private init(_ attributes: Attributes, _ content: ActivityContent<ContentState>) {
        (self.attributes, shown) = (attributes, content)
    }

    public func stubToken(_ token: Data) { tokens.continuation.yield(token) }
}

private let stubLock = NSLock()
nonisolated(unsafe) private var stubActivities: [Any] = []

/// Gives a token to each activity that `isMeant`.
public func stubActivityToken<Attributes: ActivityAttributes>(
    _ token: Data, of type: Attributes.Type, where isMeant: (Attributes) -> Bool
) {
    for activity in Activity<Attributes>.activities where isMeant(activity.attributes) { activity.stubToken(token) }
}
