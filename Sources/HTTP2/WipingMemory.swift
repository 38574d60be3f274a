internal import CNghttp2

/// An allocator for nghttp2 that wipes what is given back: header blocks and their Huffman codes hold device tokens.
enum WipingMemory {
    static func make() -> nghttp2_mem {
        unsafe nghttp2_mem(
            mem_user_data: nil,
            malloc: { size, _ in unsafe malloc(size) },
            free: { pointer, _ in unsafe WipingMemory.release(pointer) },
            calloc: { count, size, _ in unsafe calloc(count, size) },
            realloc: { pointer, size, _ in unsafe WipingMemory.resize(pointer, size) })
    }

    private static func release(_ pointer: UnsafeMutableRawPointer?) {
        guard let pointer = unsafe pointer else { return }
        unsafe explicit_bzero(pointer, malloc_usable_size(pointer))
        unsafe free(pointer)
    }

    private static func resize(_ pointer: UnsafeMutableRawPointer?, _ size: Int) -> UnsafeMutableRawPointer? {
        guard let pointer = unsafe pointer else { return unsafe malloc(size) }
        let held = unsafe malloc_usable_size(pointer)
        if size <= held { return unsafe pointer }
        guard let moved = unsafe malloc(size) else { return nil }
        unsafe memcpy(moved, pointer, held)
        unsafe release(pointer)
        return unsafe moved
    }
}
