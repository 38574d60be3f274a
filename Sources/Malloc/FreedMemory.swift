internal import CMalloc

// glibc's allocator for a whole program: Package.swift has its libraries, Swift's runtime and glibc itself call these two as `free` and
// `realloc`. They run before and beside everything else, so that nothing here may allocate or call into Swift's runtime.

/// Overwrites a block and gives it back: what lay in it can't be found later, whoever held it.
@_cdecl("mayfly_free") @unsafe public func wipeAndFree(_ block: UnsafeMutableRawPointer?) {
    guard let block = unsafe block else { return }
    unsafe explicit_bzero(block, malloc_usable_size(block))
    unsafe __libc_free(block)
}

/// A block that moves is overwritten where it was, and one that shrinks keeps nothing behind its new end.
@_cdecl("mayfly_realloc") @unsafe public func wipeAndReallocate(
    _ block: UnsafeMutableRawPointer?, _ size: UInt
) -> UnsafeMutableRawPointer? {
    guard let block = unsafe block else { return unsafe __libc_malloc(size) }
    if size == 0 {
        unsafe wipeAndFree(block)
        return nil
    }
    let held = unsafe UInt(malloc_usable_size(block))
    // At least half of it is still wanted: not worth a move.
    if size <= held, size > held &>> 1 {
        unsafe explicit_bzero(block + Int(bitPattern: size), Int(bitPattern: held &- size))
        return unsafe block
    }
    guard let moved = unsafe __libc_malloc(size) else { return nil }
    unsafe memcpy(moved, block, Int(bitPattern: size < held ? size : held))
    unsafe wipeAndFree(block)
    return unsafe moved
}
