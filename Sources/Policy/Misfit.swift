import Vocabulary

// What the broker sends by name, a policy of one's own must have too: the built-in one of its kind is the pattern. Texts, sounds,
// priorities and lives are free, and so are further templates.

extension Policy {
    /// Why the broker could not send by this policy what it sends by the built-in one of its kind; nil when it can.
    public func misfit() -> PoliciesError? {
        guard let model = try? Policy.builtIn(kind.rawValue) else { return nil }
        for wanted in model.templates.values.sorted(by: { $0.name < $1.name })
        where templates[wanted.name]?.serves(as: wanted) != true {
            return .misfit(name, kind, "template \(wanted.name) \(wanted.shape)")
        }
        if case .audience(let limits) = limits, let answerable = limits.approvals?.answerableMs,
            templates["approval_request"]?.times.contains(where: { $0.seconds.secondsInMs != answerable }) == true
        {
            return .misfit(name, kind, "template approval_request whose times are approvalSeconds, \(answerable / 1_000)")
        }
        return nil
    }
}

extension Template {
    /// Whether this one can be filled with whatever `model` can be, and goes to the same kind of token.
    fileprivate func serves(as model: Template) -> Bool {
        pushType.token == model.pushType.token && fields.count == model.fields.count
            && zip(fields, model.fields).allSatisfy { $0.name == $1.name && $0.kind.takesAll(of: $1.kind) }
    }

    fileprivate var shape: String {
        let sent = "sent to \(pushType.token) tokens, "
        guard !fields.isEmpty else { return sent + "without fields" }
        return sent + "with the fields " + fields.map { "\($0.name) (\($0.kind.words))" }.joined(separator: ", ")
    }
}

extension Field.Kind {
    fileprivate func takesAll(of model: Field.Kind) -> Bool {
        switch (self, model) {
        case (.handle, .handle), (.flag, .flag): true
        case (.oneOf(let words), .oneOf(let wanted)): wanted.allSatisfy { words.contains($0) }
        case (.number(let range, let step), .number(let wanted, let wantedStep)):
            range.contains(wanted.lowerBound) && range.contains(wanted.upperBound) && wantedStep % step == 0
                && (wanted.lowerBound - range.lowerBound) % step == 0
        default: false
        }
    }
}

extension PushType {
    /// The kind of token it goes to, as the log names it.
    fileprivate var token: String {
        switch self {
        case .alert, .background: "alert"
        case .voip: "voip"
        case .liveactivity: "liveactivity"
        }
    }
}
