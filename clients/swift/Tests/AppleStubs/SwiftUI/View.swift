@_exported import Foundation
@_exported import Observation

// Stands for Apple's SwiftUI on Linux: enough to make views, walk through them, press their buttons and turn their toggles. It draws nothing.

@MainActor @preconcurrency
public protocol View {
    associatedtype Body: View
    @ViewBuilder @MainActor @preconcurrency var body: Body { get }
}

/// A view of the library itself: it has parts instead of a body.
@MainActor
public protocol StubLeaf: View where Body == Never { var stubParts: [any View] { get } }

extension StubLeaf {
    public var body: Never { fatalError("a stub has no body") }
    public var stubParts: [any View] { [] }
}

extension Never: View { public var body: Never { fatalError() } }

@resultBuilder
@MainActor
public struct ViewBuilder {
    public static func buildExpression<Content: View>(_ content: Content) -> Content { content }
    public static func buildBlock<each Content: View>(_ content: repeat each Content) -> TupleView<(repeat each Content)> {
        var parts: [any View] = []
        repeat parts.append(each content)
        return TupleView(parts)
    }
    public static func buildBlock<Content: View>(_ content: Content) -> Content { content }
    public static func buildIf<Content: View>(_ content: Content?) -> Content? { content }
    public static func buildEither<First: View, Second: View>(first: First) -> _ConditionalContent<First, Second> {
        _ConditionalContent(first)
    }
    public static func buildEither<First: View, Second: View>(second: Second) -> _ConditionalContent<First, Second> {
        _ConditionalContent(second)
    }
}

public struct TupleView<T>: StubLeaf {
    public let stubParts: [any View]
    init(_ parts: [any View]) { stubParts = parts }
}

public struct _ConditionalContent<First: View, Second: View>: StubLeaf {
    public let stubParts: [any View]
    init(_ part: any View) { stubParts = [part] }
}

extension Optional: View where Wrapped: View { public typealias Body = Never }
extension Optional: StubLeaf where Wrapped: View { public var stubParts: [any View] { map { [$0] } ?? [] } }

public struct EmptyView: StubLeaf { public init() {} }

public struct LocalizedStringKey: ExpressibleByStringInterpolation, Hashable, Sendable {
    public let stubText: String
    public init(stringLiteral text: String) { stubText = text }
    public init(_ text: String) { stubText = text }
}

public struct Text: StubLeaf {
    public let stubText: String
    public init(_ key: LocalizedStringKey) { stubText = key.stubText }
    public init<Content: StringProtocol>(_ content: Content) { stubText = String(content) }
}

public struct Section<Content: View>: StubLeaf {
    public let stubParts: [any View]
    public init(@ViewBuilder content: () -> Content) { stubParts = [content()] }
}

public struct Form<Content: View>: StubLeaf {
    public let stubParts: [any View]
    public init(@ViewBuilder content: () -> Content) { stubParts = [content()] }
}

public struct Button: StubLeaf {
    public let stubTitle: String
    public let stubAction: @MainActor () -> Void
    public init(_ titleKey: LocalizedStringKey, action: @escaping @MainActor () -> Void) {
        (stubTitle, stubAction) = (titleKey.stubText, action)
    }
}

public struct Toggle: StubLeaf {
    public let stubTitle: String
    public let stubIsOn: Binding<Bool>
    public init(_ titleKey: LocalizedStringKey, isOn: Binding<Bool>) { (stubTitle, stubIsOn) = (titleKey.stubText, isOn) }
}

@MainActor
private protocol StubModifier {
    var stubTask: (@Sendable () async -> Void)? { get }
    var stubDisappear: (() -> Void)? { get }
}

public struct Modified<Content: View>: StubLeaf, StubModifier {
    public let stubParts: [any View]
    public let stubIsDisabled: Bool
    public let stubTask: (@Sendable () async -> Void)?
    public var stubDisappear: (() -> Void)?
}

extension View {
    public func disabled(_ disabled: Bool) -> some View {
        Modified<Self>(stubParts: [self], stubIsDisabled: disabled, stubTask: nil)
    }
    public func task(
        priority: TaskPriority = .userInitiated, @_inheritActorContext _ action: @escaping @Sendable () async -> Void
    ) -> some View {
        Modified<Self>(stubParts: [self], stubIsDisabled: false, stubTask: action)
    }
    public func onDisappear(perform action: (() -> Void)? = nil) -> some View {
        Modified<Self>(stubParts: [self], stubIsDisabled: false, stubTask: nil, stubDisappear: action)
    }
}

@propertyWrapper @dynamicMemberLookup
public struct Binding<Value> {
    private let read: () -> Value
    private let write: (Value) -> Void
    public init(get: @escaping () -> Value, set: @escaping (Value) -> Void) { (read, write) = (get, set) }
    public var wrappedValue: Value {
        get { read() }
        nonmutating set { write(newValue) }
    }
    public var projectedValue: Binding<Value> { self }
    public subscript<Subject>(dynamicMember keyPath: WritableKeyPath<Value, Subject>) -> Binding<Subject> {
        Binding<Subject>(get: { wrappedValue[keyPath: keyPath] }, set: { wrappedValue[keyPath: keyPath] = $0 })
    }
}

extension Binding: @unchecked Sendable where Value: Sendable {}

@propertyWrapper
public struct State<Value> {
    private final class Box {
        var value: Value
        init(_ value: Value) { self.value = value }
    }
    private let box: Box
    public init(wrappedValue value: Value) { box = Box(value) }
    public var wrappedValue: Value {
        get { box.value }
        nonmutating set { box.value = newValue }
    }
    public var projectedValue: Binding<Value> { Binding(get: { box.value }, set: { box.value = $0 }) }
}

extension State: @unchecked Sendable where Value: Sendable {}

extension View {
    /// All views inside, the outer ones first.
    public var stubTree: [any View] {
        if let leaf = self as? any StubLeaf { return [self] + leaf.stubParts.flatMap { $0.stubTree } }
        return [self] + body.stubTree
    }

    public func stubAppear() async {
        for case let part as any StubModifier in stubTree { await part.stubTask?() }
    }
    public func stubDisappear() {
        for case let part as any StubModifier in stubTree { part.stubDisappear?() }
    }
}
