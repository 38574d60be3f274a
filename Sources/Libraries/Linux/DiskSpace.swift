import CLinux
import Glibc

/// The space and the kind of the file system of a path.
public struct DiskSpace: Sendable {
    /// Bytes that this user may still write.
    public let free: UInt64
    public let total: UInt64
    /// The kind of file system, as far as it matters for erasing.
    public let kind: Kind

    public enum Kind: Sendable, Equatable {
        /// Overwrites blocks in place, as ext4 and xfs do.
        case inPlace
        /// Keeps old blocks. Has the file system's name.
        case copyOnWrite(String)
        /// Kept by a server or another program. Has the file system's name.
        case remote(String)
        case memory
        /// The changes of a container, which end with it.
        case overlay
    }

    public init(_ path: String) throws(Errno) {
        var raw = statfs()
        guard unsafe statfs(path, &raw) == 0 else { throw .last("statfs", path: path) }
        let block = UInt64(raw.f_bsize)
        free = UInt64(raw.f_bavail) * block
        total = UInt64(raw.f_blocks) * block
        kind = Self.kind(UInt32(truncatingIfNeeded: raw.f_type))
    }

    /// The numbers are those of `linux/magic.h` and of the file systems' own headers.
    private static func kind(_ magic: UInt32) -> Kind {
        switch magic {
        case 0x9123_683e: .copyOnWrite("btrfs")
        case 0xca45_1a4e: .copyOnWrite("bcachefs")
        case 0x2fc1_2fc1: .copyOnWrite("ZFS")
        case 0xf2f5_2010: .copyOnWrite("f2fs")
        case 0x6969: .remote("NFS")
        case 0xff53_4d42, 0xfe53_4d42: .remote("SMB")
        case 0x6573_5546: .remote("FUSE")
        case 0x0102_1997: .remote("9p")
        case 0x0102_1994, 0x8584_58f6: .memory
        case 0x794c_7630: .overlay
        default: .inPlace
        }
    }
}
