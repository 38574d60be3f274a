/// Finds the name that a mistyped word was probably meant to be.
public enum Spelling {
    /// Returns the nearest of `names`, or nil if none is near or the word is one of them. Capitals don't matter, and `-` counts as `_`.
    /// - Parameter mistakes: how many characters may be wrong, missing or superfluous, or swapped with the next one. Never more than a third
    ///   of up to six characters.
    public static func nearest(to word: String, in names: [String], mistakes: Int = 3) -> String? {
        let typed = letters(word)
        // An empty word is no typo, and a long one costs time.
        guard (1...64).contains(typed.count), !names.contains(word) else { return nil }
        let most = min(mistakes, typed.count > 6 ? 3 : max(1, typed.count / 3))
        var best: (name: String, distance: Int)?
        for name in names {
            let right = letters(name)
            if abs(right.count - typed.count) > most || right.isEmpty { continue }
            let distance = distance(typed, right)
            if distance <= most, distance < best?.distance ?? .max { best = (name, distance) }
        }
        return best?.name
    }

    /// Returns a sentence for the end of an error, or nothing if no name is near. The beginning of a name or two means these, and a name with
    /// something behind it means that name.
    /// - Parameter prefix: what precedes each name on the command line.
    public static func hint(_ word: String, _ names: [String], prefix: String = "") -> String {
        let typed = letters(word)
        guard (1...64).contains(typed.count), !names.contains(word) else { return "" }
        var meant = names.filter { letters($0).starts(with: typed + letters("-")) }
        if !(1...2).contains(meant.count) {
            let shorter = names.filter { typed.starts(with: letters($0) + letters("-")) }.max { $0.utf8.count < $1.utf8.count }
            meant = [nearest(to: word, in: names) ?? shorter].compactMap(\.self)
        }
        return meant.isEmpty ? "" : ". Did you mean \(meant.map { prefix + $0 }.joined(separator: " or "))?"
    }

    private static func letters(_ text: String) -> [UInt8] {
        text.utf8.map { (0x41...0x5a).contains($0) ? $0 | 0x20 : $0 == UInt8(ascii: "-") ? UInt8(ascii: "_") : $0 }
    }

    /// The optimal string alignment distance.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var rows = [Array(0...right.count)]
        for i in 1...left.count {
            var row = [i]
            for j in right.indices.map({ $0 + 1 }) {
                let isSame = left[i - 1] == right[j - 1]
                var least = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (isSame ? 0 : 1))
                if i > 1, j > 1, left[i - 1] == right[j - 2], left[i - 2] == right[j - 1] {
                    least = min(least, rows[i - 2][j - 2] + 1)
                }
                row.append(least)
            }
            rows.append(row)
        }
        return rows[left.count][right.count]
    }
}
