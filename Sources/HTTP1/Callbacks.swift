import CLlhttp

/// The C functions llhttp calls, each one line into the machine.
enum Callbacks {
    /// Written once, never freed: llhttp keeps the address.
    nonisolated(unsafe) static let settings: UnsafePointer<llhttp_settings_t> = {
        let settings = UnsafeMutablePointer<llhttp_settings_t>.allocate(capacity: 1)
        var calls = llhttp_settings_t()
        unsafe calls.on_message_begin = {
            unsafe machine($0).pointee.begin()
            return 0
        }
        unsafe calls.on_url = { unsafe go(machine($0).pointee.appendTarget($1!, $2)) }
        unsafe calls.on_header_field = { unsafe go(machine($0).pointee.appendName($1!, $2)) }
        unsafe calls.on_header_field_complete = { unsafe machine($0).pointee.endName() ? 0 : -1 }
        unsafe calls.on_header_value = { unsafe go(machine($0).pointee.appendValue($1!, $2)) }
        unsafe calls.on_header_value_complete = { unsafe machine($0).pointee.endValue() ? 0 : -1 }
        unsafe calls.on_headers_complete = { unsafe machine($0).pointee.endHead() }
        unsafe calls.on_chunk_header = { unsafe machine($0).pointee.beginChunk() }
        unsafe calls.on_body = { unsafe go(machine($0).pointee.appendBody($1!, $2)) }
        // Pausing stops llhttp at the message's last byte, so that the next message waits for its turn.
        unsafe calls.on_message_complete = {
            unsafe machine($0).pointee.end()
            return Int32(HPE_PAUSED.rawValue)
        }
        unsafe settings.initialize(to: calls)
        return unsafe UnsafePointer(settings)
    }()

    private static func machine(_ parser: UnsafeMutablePointer<llhttp_t>?) -> UnsafeMutablePointer<Machine> {
        unsafe parser!.pointee.data.assumingMemoryBound(to: Machine.self)
    }

    private static func go(_ goesOn: Bool) -> Int32 { goesOn ? 0 : Int32(HPE_USER.rawValue) }
}
