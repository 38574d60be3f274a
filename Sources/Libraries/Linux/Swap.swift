import CLinux

/// Memory that the kernel may write to a disk.
public enum Swap {
    /// Returns the active swap areas that would write this process's memory to a disk in the clear. Empty if its control group may not swap.
    ///
    /// - Throws: if swap is on and the process sees only processes in `/proc`.
    public static func areas() throws(Errno) -> [String] {
        // Unlike the table, this is visible with `ProcSubset=pid` and with the cgroups of any version.
        if mayfly_has_swap() == 0 || isForbidden { return [] }
        let table = String(decoding: try File.read("/proc/swaps", limit: 65_536), as: UTF8.self)
        let names = table.split(separator: "\n").dropFirst().compactMap {
            $0.split(whereSeparator: { $0 == " " || $0 == "\t" }).first
        }
        return names.map(String.init).filter { !isHarmless($0) }
    }

    /// Compressed memory, or an encrypted device.
    private static func isHarmless(_ area: String) -> Bool {
        guard area.hasPrefix("/dev/") else { return false }
        let name = area.split(separator: "/").last ?? ""
        let mapping = try? File.read("/sys/block/\(name)/dm/uuid", limit: 256)
        return name.hasPrefix("zram") || mapping?.starts(with: "CRYPT-".utf8) == true
    }

    /// True if `MemorySwapMax=0` holds for this process's control group or for one above it.
    private static var isForbidden: Bool {
        guard let groups = try? File.read("/proc/self/cgroup", limit: 65_536) else { return false }
        for line in String(decoding: groups, as: UTF8.self).split(separator: "\n") where line.hasPrefix("0::/") {
            var folder = "/sys/fs/cgroup" + line.dropFirst(3)
            while folder.utf8.count > "/sys/fs/cgroup".utf8.count {
                if (try? File.read(folder + "/memory.swap.max", limit: 64)) == Array("0\n".utf8) { return true }
                folder = File.folder(of: folder)
            }
        }
        return false
    }
}
