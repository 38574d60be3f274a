import Broker
import Linux
import Sealing
import Shares
import Vocabulary

/// The checks of `mayfly check` that concern the machine and this process's limits.
enum SystemChecks {
    static let all: [(name: String, check: @Sendable () throws -> String)] = [
        ("swap", swap), ("descriptors", descriptors),
    ]

    /// - Parameter webPush: true if Web Push is sent.
    static func memory(webPush: Bool) throws -> String {
        try Arena.prepare(webPush: webPush)
        let wanted = UInt64(Arena.byteCount(webPush: webPush))
        guard let limit = try ProcessControl.lockedMemoryLimit() else { return "memory can be locked, without a limit" }
        if limit < wanted + (1 << 20) {
            Terminal.log(
                .warning,
                "only \(limit >> 10) KiB of memory can be locked, and secrets may need \(wanted >> 10) KiB and keys some more. Set LimitMEMLOCK=16M, or ulimit -l"
            )
        }
        return "\(limit >> 10) KiB can be locked"
    }

    private static func swap() throws -> String {
        let areas: [String]
        do throws(Errno) {
            areas = try Swap.areas()
        } catch {
            Terminal.log(.warning, "whether swap is on can't be seen here (\(error.reason)). Set MemorySwapMax=0 in the unit")
            return ""
        }
        guard let first = areas.first else { return "no memory of this process can reach a disk" }
        Terminal.log(
            .warning,
            "swap is on (\(first)). Keys are locked in memory, but requests pass through memory that can be swapped. Turn swap off, encrypt it, or set MemorySwapMax=0 in the unit"
        )
        return ""
    }

    private static func descriptors() -> String {
        "\(ServiceParts.connections(atMost: ShareTable.standard[.connections].total)) connections of apps fit"
    }

    /// - Parameter knownMs: the latest time that the state folder knows of, unix ms.
    static func clock(_ knownMs: UInt64) -> String {
        let (now, hour) = (Clock.wallMs, UInt64(3_600_000))
        if now + 60_000 < knownMs {
            Terminal.log(
                .warning,
                "the clock is \((knownMs - now) / 1_000) s behind a time that the state folder has recorded. Set it right: until then broker time runs at half pace"
            )
        } else if knownMs > 0, now > knownMs + 400 * 24 * hour {
            Terminal.log(
                .warning,
                "the clock is \((now - knownMs) / (24 * hour)) days ahead of the last time that the state folder has recorded. If that is wrong, set it before a start: everything stored would expire"
            )
        }
        return "\(Timestamp.text(now)), which agrees with what the state folder has recorded"
    }

    /// The least free space at which nothing is reported, in bytes.
    private static let muchSpace: UInt64 = 1 << 30

    static func disk(_ state: StateFolder) throws -> String {
        let space = try DiskSpace(state.path)
        let free = "\(space.free >> 20) MiB free"
        if space.free < muchSpace {
            Terminal.log(.warning, "only \(free) in \(state.shown). On a full disk every call that stores something is refused")
        }
        try checkKind(space.kind, state.shown, holdsDatabase: true)
        if state.hasRatchetKeyElsewhere {
            let folder = File.folder(of: state.ratchetKey)
            try checkKind(try DiskSpace(folder).kind, state.shown(folder), holdsDatabase: false)
        }
        return free
    }

    /// - Throws: `CheckFailed` for a database on another machine's file system.
    private static func checkKind(_ kind: DiskSpace.Kind, _ folder: String, holdsDatabase: Bool) throws {
        let keeps = "Encrypt it, or keep the key file elsewhere: docs/production.md, Keep the key file off the disk"
        switch kind {
        case .inPlace: break
        case .memory:
            if holdsDatabase { Terminal.log(.warning, "\(folder) is in memory: a restart of the machine ends the log") }
        case .overlay:
            Terminal.log(.warning, "\(folder) is in a container's layer, and is lost with the container. Mount a volume there")
        case .copyOnWrite(let name):
            Terminal.log(
                .warning, "\(folder) is on \(name), which keeps old keys and rows until their blocks are used again. \(keeps)")
        case .remote(let name) where holdsDatabase && name != "FUSE":
            throw CheckFailed("\(folder) is on \(name). SQLite's database needs a disk of this machine: move the state folder")
        case .remote(let name):
            Terminal.log(.warning, "\(folder) is on \(name), so its server may keep old keys and rows. \(keeps)")
        }
    }
}
