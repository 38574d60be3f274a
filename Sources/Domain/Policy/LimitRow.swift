/// One number of a policy: a row of the table of its kind of app. The reader, `policy show`, `policy keys`, the schema and the reference are made
/// from the rows.
public struct LimitRow: Sendable {
    /// Dots separate the names of nested objects, such as `joinCode.shortest`.
    public let key: String
    public let bounds: ClosedRange<Int>
    /// For older policies, which lack this key. Nil if the key is required.
    public let defaultValue: Int?
    public let meaning: String
    /// The reason for the bounds, for findings.
    let why: String
    /// A line of `policy show`. In the text `{}` stands for the number, and `{key}` for another one.
    let shown: (label: String, text: String)?

    static func number(
        _ key: String, _ bounds: ClosedRange<Int>, default value: Int? = nil, _ meaning: String, show label: String? = nil,
        as text: String = "{} s",
        why: String
    ) -> [LimitRow] {
        [LimitRow(key: key, bounds: bounds, defaultValue: value, meaning: meaning, why: why, shown: label.map { ($0, text) })]
    }

    /// Lives that a caller may ask for: `{"min", "max", "default"}`.
    /// - Parameter or: what else may determine the default.
    static func lives(
        of thing: String, _ key: String, _ bounds: ClosedRange<Int>, default value: Int? = nil, show label: String,
        or other: String = "",
        why: String
    ) -> [LimitRow] {
        number(
            key + ".min", bounds, "shortest life that can be asked for \(thing)", show: label,
            as: "{} to {\(key).max} s; {\(key).default} s\(other) by default", why: why)
            + number(key + ".max", bounds, "longest life that can be asked for \(thing)", why: why)
            + number(key + ".default", bounds, default: value, "life of \(thing) for which none is asked", why: why)
    }

    /// Uses in a time window: `{"count", "seconds"}`.
    static func budget(_ key: String, default budget: Budget? = nil, show label: String? = nil, _ uses: String) -> [LimitRow] {
        number(
            key + ".count", 1...1_000_000_000, default: budget?.count, uses, show: label, as: "{} per {\(key).seconds} s",
            why: "zero would refuse everything, and more than a billion is not a limit")
            + number(
                key + ".seconds", 1...86_400, default: budget.map { Int($0.windowMs / 1_000) },
                "window of that count, in seconds",
                why: "counted callers are remembered for one window, and a day is the limit")
    }

    /// A budget for each address, and one for all together: `{"perAddress", "overall"}`.
    static func budgets(_ key: String, show label: String, _ uses: String) -> [LimitRow] {
        let (one, all) = (key + ".perAddress", key + ".overall")
        let rows = budget(one, uses + ", by one address") + budget(all, uses + ", by all together")
        return rows.showing(label, "{} per {\(one).seconds} s an address, {\(all).count} per {\(all).seconds} s in all")
    }
}

extension [LimitRow] {
    /// The rows, of which the first one without a line of `policy show` gets this line.
    func showing(_ label: String, _ text: String) -> [LimitRow] {
        guard let index = firstIndex(where: { $0.shown == nil }) else { preconditionFailure("each row has a line") }
        var rows = self
        let row = self[index]
        rows[index] = LimitRow(
            key: row.key, bounds: row.bounds, defaultValue: row.defaultValue, meaning: row.meaning, why: row.why,
            shown: (label, text))
        return rows
    }

    /// The rows of an object that the policy has. If all its numbers have defaults, only the whole object may be absent, so each number is required.
    fileprivate var required: [LimitRow] {
        guard allSatisfy({ $0.defaultValue != nil }) else { return self }
        return map {
            LimitRow(key: $0.key, bounds: $0.bounds, defaultValue: nil, meaning: $0.meaning, why: $0.why, shown: $0.shown)
        }
    }
}

/// The numbers that a policy has, by key.
struct LimitValues: Sendable {
    private var numbers: [String: Int] = [:]
    /// The keys whose numbers are defaults.
    private var defaulted: Set<String> = []

    /// Reads an object.
    /// - Returns: the numbers that are valid. The others are findings.
    init(_ object: ObjectReader, _ rows: [LimitRow]) { read(object, rows, "") }

    private mutating func read(_ object: ObjectReader, _ rows: [LimitRow], _ prefix: String) {
        for name in Self.names(rows, prefix) {
            let (key, inner) = (prefix + name, rows.filter { $0.key.hasPrefix(prefix + name + ".") })
            if !object.has(name), let defaults = Self.defaults(inner.isEmpty ? rows.filter { $0.key == key } : inner) {
                numbers.merge(defaults) { $1 }
                defaulted.formUnion(defaults.keys)
            } else if let row = rows.first(where: { $0.key == key }) {
                numbers[key] = object.int(name, in: row.bounds, why: row.why)
            } else if let object = object.object(name, known: Self.names(inner, key + ".")) {
                read(object, inner.required, key + ".")
            }
        }
    }

    /// The names in an object, in the order of the rows.
    static func names(_ rows: [LimitRow], _ prefix: String = "") -> [String] {
        var names: [String] = []
        for row in rows {
            let name = String(row.key.dropFirst(prefix.count).prefix { $0 != "." })
            if names.last != name { names.append(name) }
        }
        return names
    }

    /// The numbers of an absent member, or nil if it is required.
    private static func defaults(_ rows: [LimitRow]) -> [String: Int]? {
        var numbers: [String: Int] = [:]
        for row in rows {
            guard let value = row.defaultValue else { return nil }
            numbers[row.key] = value
        }
        return numbers
    }

    func isComplete(_ rows: [LimitRow]) -> Bool { rows.allSatisfy { numbers[$0.key] != nil } }

    /// True if the number was in the policy and is valid.
    func isGiven(_ key: String) -> Bool { numbers[key] != nil && !defaulted.contains(key) }

    /// Returns nil if the policy has no valid number for this key, and the key has no default.
    func find(_ key: String) -> Int? { numbers[key] }
    mutating func set(_ key: String, _ number: Int) { numbers[key] = number }

    func findBudget(_ key: String) -> Budget? {
        guard let count = find(key + ".count"), let seconds = find(key + ".seconds") else { return nil }
        return Budget(count: count, windowMs: seconds.secondsInMs)
    }

    /// True if the bounds are there and in order.
    func isRange(_ key: String) -> Bool {
        guard let least = find(key + ".min"), let most = find(key + ".max") else { return false }
        return least <= most
    }

    // These trap unless `isComplete`, and `range` unless `isRange`.

    subscript(key: String) -> Int {
        guard let number = numbers[key] else { preconditionFailure("no row has the key \(key)") }
        return number
    }

    func ms(_ key: String) -> UInt64 { self[key].secondsInMs }

    func range(_ key: String) -> ClosedRange<Int> { self[key + ".min"]...self[key + ".max"] }

    func budget(_ key: String) -> Budget { Budget(count: self[key + ".count"], windowMs: ms(key + ".seconds")) }

    func budgets(_ key: String) -> Budgets { Budgets(perAddress: budget(key + ".perAddress"), overall: budget(key + ".overall")) }

    /// The lines of `policy show`.
    func lines(_ rows: [LimitRow]) -> [(String, String)] {
        rows.compactMap { row in
            guard let (label, text) = row.shown else { return nil }
            // Each piece after the first begins with a key and a brace.
            let pieces = text.split(separator: "{", omittingEmptySubsequences: false)
            let filled = pieces.dropFirst().map { piece in
                let key = piece.prefix { $0 != "}" }
                return self[key.isEmpty ? row.key : String(key)].grouped + piece.dropFirst(key.count + 1)
            }
            return (label, pieces[0] + filled.joined())
        }
    }
}

extension Int {
    var secondsInMs: UInt64 { UInt64(self) * 1_000 }
}
