internal import CMalloc

// Replaces glibc's `free` and `realloc` for a whole program. The linker flags in Package.swift redirect libraries, Swift's runtime and glibc here.
// These functions run before and beside everything else, so they must not allocate or call Swift's runtime.

/// Overwrites a block and frees it, so that its content can't be found later.
@_cdecl("mayfly_free") @unsafe public func wipeAndFree(_ block: UnsafeMutableRawPointer?) {
    guard let block = unsafe block else { return }
    unsafe explicit_bzero(block, malloc_usable_size(block))
    unsafe __libc_free(block)
}

/// Overwrites the old place of a block that moves, and the end of a block that shrinks.
@_cdecl("mayfly_realloc") @unsafe public func wipeAndReallocate(
    _ block: UnsafeMutableRawPointer?, _ size: UInt
) -> UnsafeMutableRawPointer? {
    guard let block = unsafe block else { return unsafe __libc_malloc(size) }
    if size == 0 {
        unsafe wipeAndFree(block)
        return nil
    }
    let held = unsafe UInt(malloc_usable_size(block))
    // At least half of the block stays in use, so a move isn't worth its cost.
    if size <= held, size > held &>> 1 {
        unsafe explicit_bzero(block + Int(bitPattern: size), Int(bitPattern: held &- size))
        return unsafe block
    }
    guard let moved = unsafe __libc_malloc(size) else { return nil }
    unsafe memcpy(moved, block, Int(bitPattern: size < held ? size : held))
    unsafe wipeAndFree(block)
    return unsafe moved
}
