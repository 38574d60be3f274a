import Linux

extension LedgerFolder {
    /// Removes what a crash in a publication left: partial files whose full one the published log has, and files that never got their names.
    /// For a start, after the folder was repaired. Only tidiness, so that failing is no error: what stays is still right.
    ///
    /// Such files lie where the log ended then, so only the folders around its end are looked at: two of at most 1,000 tiles a level.
    public func tidy() {
        guard let bytes = try? checkpoint(), let size = SignedNote(bytes).flatMap({ Checkpoint(text: $0.text) })?.size else {
            return
        }
        removeUnnamed(in: path)
        removeUnnamed(in: "\(path)/\(File.folder(of: TilePath.policy(.emptyRoot)))")
        for level in 0..<8 where size >> UInt64(8 * level) > 0 {
            tidy(before: size >> UInt64(8 * level + 8)) { TilePath.hashes(level: level, index: $0) }
        }
        tidy(before: size >> 8) { TilePath.entries(index: $0) }
    }

    /// `end`: the number of the first tile that is not full.
    private func tidy(before end: UInt64, _ full: (UInt64) -> String) {
        let last = end / TilePath.groupWidth
        for group in [last, last - min(last, 1)] {
            let first = group * TilePath.groupWidth
            let folder = "\(path)/\(File.folder(of: full(first)))"
            removeUnnamed(in: folder)
            for name in (try? File.list(folder)) ?? [] where name.hasSuffix(".p") {
                let place = "\(folder)/\(name)"
                if let number = UInt64(name.dropLast(2)), first + number < end, File.exists(String(place.dropLast(2))) {
                    try? File.removeTree(place)
                } else {
                    removeUnnamed(in: place)
                }
            }
        }
    }

    private func removeUnnamed(in folder: String) {
        for name in (try? File.list(folder)) ?? [] where name.hasSuffix(".new") { try? File.remove("\(folder)/\(name)") }
    }
}
