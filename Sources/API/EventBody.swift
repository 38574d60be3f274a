import Broker
import Policy
import Sealing

/// What a companion's client says of an event, read from the body's own bytes. All that is text is dropped.
struct EventBody {
    var event: CompanionEvent
    /// Paths of what was dropped, sorted.
    var dropped: [String]

    static let types = [
        "approval_request", "question_asked", "task_complete", "task_failed", "claude-complete", "progress_update",
        "state_change",
    ]

    /// - Parameters:
    ///   - data: the object under `data`; nil without one.
    ///   - bytes: those that `data` counts in.
    /// - Throws: `.missingField`, `.wrongType` and `.outOfRange`, with the field's path from `data` on.
    init(type: String?, data: JSONObject?, _ bytes: Span<UInt8>) throws(BrokerError) {
        var known: Set<String> = []
        var nested: [String] = []
        switch type {
        case nil: throw .missingField("type")
        case "approval_request": event = .approvalRequest
        case "question_asked": event = .question
        case "task_failed": event = .complete(success: false)
        case "task_complete", "claude-complete":
            known = ["status"]
            let status = try Self.word("status", data, bytes)
            guard status == nil || ["success", "completed", "complete", "error", "failed", "failure"].contains(status) else {
                throw .outOfRange("data.status", allowed: "success or error")
            }
            event = .complete(success: !["error", "failed", "failure"].contains(status))
        case "progress_update":
            known = ["elapsedSeconds", "todoProgress"]
            var progress = SessionProgress(elapsedSeconds: try Self.number("elapsedSeconds", data, bytes, "data.elapsedSeconds"))
            if let (todo, range) = try Self.object("todoProgress", data, bytes) {
                let inner = bytes.extracting(range)
                progress.completed = try Self.number("completed", todo, inner, "data.todoProgress.completed")
                progress.total = try Self.number("total", todo, inner, "data.todoProgress.total")
                guard (progress.completed == nil) == (progress.total == nil) else {
                    throw .missingField(progress.total == nil ? "data.todoProgress.total" : "data.todoProgress.completed")
                }
                // A negative total is refused by its own name, with what the policy does not let pass.
                if let completed = progress.completed, let total = progress.total, total >= 0, completed > total {
                    throw .outOfRange("data.todoProgress.completed", allowed: "at most data.todoProgress.total")
                }
                nested = Self.names(of: todo, but: ["completed", "total"], under: "data.todoProgress.")
            }
            event = .progress(progress)
        case "state_change":
            // The one before says nothing that is needed, and is no text: it is passed over.
            known = ["previousState", "newState"]
            guard let state = try Self.word("newState", data, bytes) else { throw .missingField("data.newState") }
            event = .state(state)
        default:
            throw .outOfRange("type", allowed: "one of \(Self.types.joined(separator: ", "))")
        }
        dropped = (data.map { Self.names(of: $0, but: known, under: "data.") } ?? []) + nested
        dropped.sort()
    }

    static func names(of object: JSONObject, but known: Set<String>, under path: String) -> [String] {
        // A name is text as well: one that could be anything is not repeated.
        object.names.compactMap { name in
            let name = String(decoding: name, as: UTF8.self)
            if known.contains(name) { return nil }
            let isPlain =
                name.utf8.count <= 32 && name.utf8.allSatisfy { 0x61...0x7a ~= $0 | 0x20 || 0x30...0x39 ~= $0 || $0 == 0x5f }
            return path + (isPlain && !name.isEmpty ? name : "*")
        }
    }

    private static func number(
        _ name: StaticString, _ object: JSONObject?, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> Int? {
        do throws(JSONObject.Failure) {
            return try object?.integer(name, in: bytes)
        } catch {
            switch error {
            case .wrongType: throw .wrongType(path, expected: "a whole number")
            case .outOfRange: throw .outOfRange(path, allowed: "what the policy lets pass")
            }
        }
    }

    private static func word(_ name: StaticString, _ object: JSONObject?, _ bytes: Span<UInt8>) throws(BrokerError) -> String? {
        do throws(JSONObject.Failure) {
            return try object?.bytes(name, in: bytes).map { String(decoding: $0, as: UTF8.self) }
        } catch {
            throw .wrongType("data.\(name)", expected: "a word")
        }
    }

    private static func object(
        _ name: StaticString, _ object: JSONObject?, _ bytes: Span<UInt8>
    ) throws(BrokerError) -> (JSONObject, Range<Int>)? {
        do throws(JSONObject.Failure) {
            guard let range = try object?.object(name, in: bytes) else { return nil }
            guard let inner = JSONObject(bytes.extracting(range)) else { throw .wrongType }
            return (inner, range)
        } catch {
            throw .wrongType("data.\(name)", expected: "an object, or nothing")
        }
    }
}
