import Vocabulary

extension Policy {
    /// Returns the policy as text: every limit, every template, and for rooms the odds of guessing a join code.
    public func summary() -> String {
        var lines = ["policy \(name)", "kind \(kind.rawValue)", "sha256 \(digest.hex)", "", "limits"]
        lines += values.lines(kind.limitRows).map { row("  ", $0, $1) }
        if kind == .rooms { lines += ["", "public log"] + ledger.lines.map { row("  ", $0, $1) } }
        for template in templates.values.sorted(by: { $0.name < $1.name }) {
            lines += ["", "template \(template.name)"]
            lines += template.rows(after: kind == .rooms ? "knock" : "event").map { row("  ", $0, $1) }
        }
        if case .rooms(let limits) = limits {
            lines += ["", "guessing a join code: the chance that one day of it hits"]
            lines += Guessing(limits).rows
        }
        return lines.joined(separator: "\n") + "\n"
    }
}

private func row(_ indent: String, _ name: String, _ value: String) -> String {
    indent + name + String(repeating: " ", count: max(1, 34 - name.count)) + value
}

extension LedgerTiming {
    fileprivate var lines: [(String, String)] {
        [
            (
                "seals and purges are published",
                "every \(seconds(hourSeconds * 1_000)), if at least \(batchSeals == 1 ? "1 seal waits" : "\(batchSeals.grouped) seals wait")"
            ),
            ("and always", "every \(seconds(daySeconds * 1_000))"),
        ]
    }
}

private func seconds(_ ms: UInt64) -> String { "\(Int(ms / 1000).grouped) s" }

extension Template {
    /// - Parameter cause: "knock" or "event".
    fileprivate func rows(after cause: String) -> [(String, String)] {
        var rows = [
            ("push type, priority", "\(pushType), \(priority)"),
            ("worth delivering for", ttlSeconds == 0 ? "one attempt" : "\(ttlSeconds.grouped) s, never past the token's expiry"),
        ]
        rows += texts.map { ($0.key, "\"\($0.text)\"") }
        rows.append(("handle", handleKey.map { "collapse id, and \($0.joined(separator: "."))" } ?? "collapse id"))
        rows.append(("browsers show", web?.words ?? "nothing: it isn't sent to them"))
        rows += timing.rows(after: cause)
        rows += fields.map { ("field \($0.name)", $0.kind.words + ($0.key.map { ", at \($0.joined(separator: "."))" } ?? "")) }
        rows.append(("payload", "at most \(worstCasePayload.grouped) bytes (Apple's limit is \(pushType.payloadLimit.grouped))"))
        rows.append(("", pieces.map(\.words).joined()))
        return rows
    }
}

extension WebTemplate {
    fileprivate var words: String {
        let texts = [title, body].compactMap { $0.map { "\"\($0)\"" } }.joined(separator: ", ")
        return texts + (requireInteraction ? " until it is closed" : "")
            + ", a click opens \(path) (at most \(worstCase.grouped) bytes)"
    }
}

extension SendTiming {
    fileprivate func rows(after cause: String) -> [(String, String)] {
        guard !isAtOnce else {
            return [("leaves", "at once"), ("so its time tells Apple", "when the \(cause) came")]
        }
        let slot = slotMs / 1_000
        let span = spanMs / 1_000
        let jitter = jitterMs == 0 ? "" : " and up to \(jitterMs / 1_000) s more, drawn at random"
        return [
            (
                "leaves",
                slotMs == 0
                    ? "up to \(jitterMs / 1_000) s after the \(cause), drawn at random"
                    : "at the next whole \(slot) s of unix time" + jitter
            ),
            (
                "so its time tells Apple",
                "that the \(cause) came in the \(longestWaitMs / 1_000) s before, spread evenly over \(span) s of them or more"
            ),
            ("", "(a guess at its second is right at most 1 time in \(span))"),
            (
                "together with the public log",
                slotMs == 0
                    ? "no bound: the log's windows cut those seconds anywhere"
                    : "\(slot) s, if the log's windows are whole multiples of \(slot) s; otherwise less"
            ),
        ]
    }
}

extension Field.Kind {
    /// The allowed values as text.
    public var words: String {
        switch self {
        case .handle: "handle (16 opaque bytes)"
        case .oneOf(let words): "one of " + words.joined(separator: ", ")
        case .number(let range, let step): "number \(range.lowerBound) to \(range.upperBound) in steps of \(step)"
        case .flag: "true or false"
        }
    }
}

extension Piece {
    fileprivate var words: String {
        switch self {
        case .bytes(let bytes): String(decoding: bytes, as: UTF8.self)
        case .handle: "<handle>"
        case .origin: "<origin>"
        case .time(let seconds, _): seconds == 0 ? "<time>" : "<time + \(seconds.grouped) s>"
        case .field: "<field>"
        }
    }
}

extension Guessing {
    fileprivate var rows: [String] {
        let pending = limits.pendingShortCodes
        let below = limits.shortCodeBelow
        var lines = [
            "  codes of fewer than \(below) characters: by one address (\(guesses(.oneAddress, below - 1))), or by as many as use up what all",
            "  together have (\(guesses(.everyAddress, below - 1))); longer ones, for which all together have no limit: by one address",
            "  (\(guesses(.oneAddress, below))), or by \(Self.mostAddresses.grouped) (\(guesses(.everyAddress, below)))",
            "  of one certain room, or of any of \(pending.grouped) waiting rooms with such a code",
            "  " + columns("code", "one room,", "one room,", "any room,", "any room,"),
            "  " + columns("", "one address", "all addresses", "one address", "all addresses"),
        ]
        for alphabet in Alphabet.allCases {
            for characters in [4, 6, 8] {
                let chances = [1, pending].flatMap { rooms in
                    Guesser.allCases.map {
                        hitsWithinDay(alphabet, characters: characters, rooms: rooms, guesser: $0).asProbability
                    }
                }
                lines.append("  " + columns("\(characters) \(alphabet)", chances[0], chances[1], chances[2], chances[3]))
            }
        }
        lines.append(
            "  codes of fewer than \(limits.shortestCode) characters are refused; the cap on waiting rooms applies to those of fewer than \(limits.shortCodeBelow)"
        )
        return lines
    }

    private func guesses(_ guesser: Guesser, _ characters: Int) -> String {
        "\(guessesPerDay(guesser, characters: characters).grouped) guesses"
    }

    private func columns(_ cells: String...) -> String {
        cells.enumerated().map { index, cell in
            cell + String(repeating: " ", count: max(1, (index == 0 ? 18 : 22) - cell.count))
        }.joined().trimmedEnd
    }
}

extension String {
    fileprivate var trimmedEnd: String {
        guard let last = lastIndex(where: { $0 != " " }) else { return "" }
        return String(self[...last])
    }
}
