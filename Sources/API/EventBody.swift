import Broker
import JSON
import Policy
import Sealing

/// What a companion's client says of an event, read from the body's own bytes. All that is text is dropped.
struct EventBody {
    var event: CompanionEvent
    /// The back end's own id of an approval or a question.
    var ownID: [UInt8]?
    /// Paths of what was dropped, sorted.
    var dropped: [String]

    static let types = [
        "approval_request", "question_asked", "task_complete", "task_failed", "claude-complete", "progress_update",
        "state_change",
    ]

    /// - Parameters:
    ///   - data: the object under `data`; nil without one.
    ///   - bytes: the body.
    ///   - faults: gets what is wrong, with the field's path from `data` on.
    /// - Returns: nil only after a fault.
    init?(type: String, data: JSONObject?, _ bytes: Span<UInt8>, _ faults: inout FieldFaults) {
        var known: Set<String> = []
        var nested: [String] = []
        switch type {
        case "approval_request":
            known = ["requestId", "id"]
            ownID = faults.take { () throws(BrokerError) in try Self.ownID("requestId", data, bytes) }
            event = .approvalRequest
        case "question_asked":
            known = ["questionId", "id"]
            ownID = faults.take { () throws(BrokerError) in try Self.ownID("questionId", data, bytes) }
            event = .question
        case "task_failed": event = .complete(success: false)
        case "task_complete", "claude-complete":
            known = ["status"]
            // Anything but this word is a failure, so that no failure is reported as a success.
            let status = try? data?.bytes("status", in: bytes)
            event = .complete(success: status.map { $0.elementsEqual("success".utf8) } ?? false)
        case "progress_update":
            known = ["elapsedSeconds", "todoProgress"]
            var progress = SessionProgress(
                elapsedSeconds: faults.take { () throws(BrokerError) in
                    try Self.number("elapsedSeconds", data, bytes, "data.elapsedSeconds")
                })
            let todo = faults.take { () throws(BrokerError) in try Self.object("todoProgress", data, bytes) }
            if let todo {
                Self.read(todo, bytes, into: &progress, &faults)
                nested = Self.names(of: todo, bytes, but: ["completed", "total"], under: "data.todoProgress.")
            }
            event = .progress(progress)
        case "state_change":
            known = ["previousState", "newState"]
            let state = faults.required("data.newState") { () throws(BrokerError) in try Self.word("newState", data, bytes) }
            guard let state else { return nil }
            // Only sockets get the previous state, and only a listed word. An invalid one is no error.
            let before = try? data?.bytes("previousState", in: bytes)
            event = .state(state, before: before.map { String(decoding: $0, as: UTF8.self) })
        default:
            faults.note(.outOfRange("type", allowed: "one of \(Self.types.joined(separator: ", "))"))
            return nil
        }
        dropped = (data.map { Self.names(of: $0, bytes, but: known, under: "data.") } ?? []) + nested
        dropped.sort()
    }

    private static func read(
        _ todo: JSONObject, _ bytes: Span<UInt8>, into progress: inout SessionProgress, _ faults: inout FieldFaults
    ) {
        let before = faults.errors.count
        progress.completed = faults.take { () throws(BrokerError) in
            try number("completed", todo, bytes, "data.todoProgress.completed")
        }
        progress.total = faults.take { () throws(BrokerError) in try number("total", todo, bytes, "data.todoProgress.total") }
        guard faults.errors.count == before else { return }
        switch (progress.completed, progress.total) {
        case (nil, .some): faults.note(.missingField("data.todoProgress.completed"))
        case (.some, nil): faults.note(.missingField("data.todoProgress.total"))
        // A negative total is left to the policy, whose error names that field.
        case (let completed?, let total?) where total >= 0 && completed > total:
            faults.note(.outOfRange("data.todoProgress.completed", allowed: "at most data.todoProgress.total"))
        default: break
        }
    }

    static func names(of object: JSONObject, _ bytes: Span<UInt8>, but known: Set<String>, under path: String) -> [String] {
        // A name is text as well: one that could be anything is not repeated.
        object.names(in: bytes).compactMap { name in
            let name = String(decoding: name, as: UTF8.self)
            if known.contains(name) { return nil }
            let isPlain =
                name.utf8.count <= 32 && name.utf8.allSatisfy { 0x61...0x7a ~= $0 | 0x20 || 0x30...0x39 ~= $0 || $0 == 0x5f }
            return path + (isPlain && !name.isEmpty ? name : "*")
        }
    }

    private static func number(
        _ name: String, _ object: JSONObject?, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> Int? {
        do throws(JSONObject.Failure) {
            return try object?.integer(name, in: bytes)
        } catch {
            switch error {
            case .wrongType: throw .wrongType(path, expected: "a whole number")
            case .outOfRange: throw .outOfRange(path, allowed: "a number within the policy's range")
            }
        }
    }

    private static func word(_ name: String, _ object: JSONObject?, _ bytes: Span<UInt8>) throws(BrokerError) -> String? {
        do throws(JSONObject.Failure) {
            return try object?.bytes(name, in: bytes).map { String(decoding: $0, as: UTF8.self) }
        } catch {
            throw .wrongType("data.\(name)", expected: "a word")
        }
    }

    /// A back end's own id, under its full name or under `id`.
    private static func ownID(
        _ name: String, _ object: JSONObject?, _ bytes: Span<UInt8>
    ) throws(BrokerError) -> [UInt8]? {
        if let id = try Self.name(name, object, bytes) { return id }
        return try Self.name("id", object, bytes)
    }

    private static func name(
        _ name: String, _ object: JSONObject?, _ bytes: Span<UInt8>
    ) throws(BrokerError) -> [UInt8]? {
        let value: [UInt8]?
        do throws(JSONObject.Failure) {
            value = try object?.bytes(name, in: bytes)
        } catch {
            throw .wrongType("data.\(name)", expected: "a string")
        }
        guard let value else { return nil }
        guard (1...128).contains(value.count) else { throw .outOfRange("data.\(name)", allowed: "1 to 128 bytes") }
        return value
    }

    private static func object(
        _ name: String, _ object: JSONObject?, _ bytes: Span<UInt8>
    ) throws(BrokerError) -> JSONObject? {
        do throws(JSONObject.Failure) {
            guard let object, let item = try object.object(name, in: bytes) else { return nil }
            guard let inner = object.opened(item, in: bytes) else { throw .wrongType }
            return inner
        } catch {
            throw .wrongType("data.\(name)", expected: "an object, or nothing")
        }
    }
}
