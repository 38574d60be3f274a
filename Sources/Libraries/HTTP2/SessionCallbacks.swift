internal import CNghttp2
import Linux

/// nghttp2's callbacks while it reads or writes. Each appends an event or changes a stream.
extension HTTP2Session {
    func makeSession(_ role: Role, _ state: UnsafeMutablePointer<State>) throws(HTTP2Error) -> OpaquePointer {
        var callbacks: OpaquePointer?
        var options: OpaquePointer?
        guard unsafe nghttp2_session_callbacks_new(&callbacks) == 0, unsafe nghttp2_option_new(&options) == 0 else {
            throw .outOfMemory
        }
        defer {
            unsafe nghttp2_session_callbacks_del(callbacks)
            unsafe nghttp2_option_del(options)
        }
        unsafe setCallbacks(callbacks)
        unsafe nghttp2_option_set_max_outbound_ack(options, 100)
        unsafe nghttp2_option_set_max_settings(options, 32)
        unsafe nghttp2_option_set_no_closed_streams(options, 1)
        unsafe nghttp2_option_set_max_deflate_dynamic_table_size(options, 4096)

        var memory = unsafe WipingMemory.make()
        var session: OpaquePointer?
        let owner = UnsafeMutableRawPointer(state)
        let result =
            switch role {
            case .client: unsafe nghttp2_session_client_new3(&session, callbacks, owner, options, &memory)
            case .server: unsafe nghttp2_session_server_new3(&session, callbacks, owner, options, &memory)
            }
        guard result == 0, let session = unsafe session else { throw .outOfMemory }
        return unsafe session
    }

    private func setCallbacks(_ callbacks: OpaquePointer?) {
        unsafe nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks) { session, header, owner in
            unsafe State.with(owner) { unsafe $0.began(header!.pointee, session) }
        }
        unsafe nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, frame, owner in
            unsafe State.with(owner) { unsafe $0.beganHeaders(of: frame!.pointee.hd.stream_id) }
        }
        unsafe nghttp2_session_callbacks_set_on_header_callback(callbacks) { _, frame, name, nameCount, value, count, _, owner in
            unsafe State.with(owner) { session in
                unsafe session.received(
                    stream: frame!.pointee.hd.stream_id, UnsafeBufferPointer(start: name, count: nameCount),
                    UnsafeBufferPointer(start: value, count: count))
            }
        }
        unsafe nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) { _, _, stream, data, count, owner in
            unsafe State.with(owner) { unsafe $0.received(stream: stream, UnsafeBufferPointer(start: data, count: count)) }
        }
        unsafe nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { session, frame, owner in
            unsafe State.with(owner) { unsafe $0.received(frame!.pointee, session) }
        }
        unsafe nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks) { session, frame, _, owner in
            unsafe State.with(owner) { unsafe $0.refused(frame!.pointee.hd, session) }
        }
        unsafe nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks) { _, frame, _, owner in
            unsafe State.with(owner) { session in
                guard unsafe frame!.pointee.hd.type == UInt8(NGHTTP2_HEADERS.rawValue) else { return }
                unsafe session.streams[frame!.pointee.hd.stream_id]?.unsent = true
            }
        }
        unsafe nghttp2_session_callbacks_set_on_frame_send_callback(callbacks) { session, frame, owner in
            unsafe State.with(owner) { unsafe $0.sent(frame!.pointee.hd, session) }
        }
        unsafe nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { session, stream, code, owner in
            unsafe State.with(owner) { unsafe $0.closed(stream, HTTP2ErrorCode(rawValue: code), session) }
        }
    }

}

extension HTTP2Session.State {
    private typealias Index = Dictionary<Int32, HTTP2Session.Stream>.Index

    fileprivate static func with(_ owner: UnsafeMutableRawPointer?, _ body: (inout Self) -> Void) -> Int32 {
        unsafe body(&owner!.assumingMemoryBound(to: Self.self).pointee)
        return 0
    }

    // MARK: Incoming

    fileprivate mutating func began(_ header: nghttp2_frame_hd, _ session: OpaquePointer?) {
        guard role == .server, header.type != UInt8(NGHTTP2_HEADERS.rawValue),
            header.type != UInt8(NGHTTP2_DATA.rawValue) || header.length == 0
                || header.flags & UInt8(NGHTTP2_FLAG_PADDED.rawValue) != 0
        else { return }
        controlFrames += 1
        if controlFrames == limits.controlFrames {
            unsafe _ = nghttp2_session_terminate_session(session, HTTP2ErrorCode.enhanceYourCalm.rawValue)
        }
    }

    /// nghttp2 resets the stream by itself: the request is malformed or exceeds the limit on streams.
    fileprivate mutating func refused(_ header: nghttp2_frame_hd, _ session: OpaquePointer?) {
        guard role == .server, header.type == UInt8(NGHTTP2_HEADERS.rawValue) else { return }
        isInHeaderBlock = false
        unsafe wasted(session)
    }

    private mutating func wasted(_ session: OpaquePointer?) {
        wastedStreams += 1
        if wastedStreams == limits.wastedStreams {
            unsafe _ = nghttp2_session_terminate_session(session, HTTP2ErrorCode.enhanceYourCalm.rawValue)
        }
    }

    fileprivate mutating func beganHeaders(of stream: Int32) {
        // A peer's blocks have similar sizes. A block that outgrows its capacity is copied and wiped.
        block = HTTP2Headers(capacity: min(max(256, blockBytes), 2048))
        blockBytes = 0
        isInHeaderBlock = true
        if role == .server, streams[stream] == nil { streams[stream] = HTTP2Session.Stream() }
    }

    fileprivate mutating func received(stream: Int32, _ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>) {
        blockBytes += name.count + value.count + 32
        guard blockBytes <= limits.headerListBytes, block.count < limits.headerFields else {
            return markTooLarge(stream, .headers)
        }
        unsafe block.append(Span(_unsafeElements: name), Span(_unsafeElements: value))
    }

    fileprivate mutating func received(stream: Int32, _ data: UnsafeBufferPointer<UInt8>) {
        guard let index = streams.index(forKey: stream), !streams.values[index].tooLarge else { return }
        streams.values[index].received += data.count
        guard streams.values[index].received <= limits.bodyBytes else {
            markTooLarge(stream, .body)
            return
        }
        unsafe events.append(.data(stream: stream, HTTP2Data(data)))
    }

    private mutating func markTooLarge(_ stream: Int32, _ part: HTTP2Event.Part) {
        guard let index = streams.index(forKey: stream), !streams.values[index].tooLarge else { return }
        streams.values[index].tooLarge = true
        events.append(.tooLarge(stream: stream, part))
    }

    fileprivate mutating func received(_ frame: nghttp2_frame, _ session: OpaquePointer?) {
        let header = unsafe frame.hd
        let stream = header.stream_id
        switch nghttp2_frame_type(rawValue: UInt32(header.type)) {
        case NGHTTP2_HEADERS:
            isInHeaderBlock = false
            let status = block.status
            if let status, status < 100 {
                // nghttp2 accepts any three digits as a final status, and doesn't report an error if both sides have ended the stream.
                streams[stream]?.malformed = true
                unsafe _ = nghttp2_submit_rst_stream(
                    session, UInt8(NGHTTP2_FLAG_NONE.rawValue), stream, HTTP2ErrorCode.protocolError.rawValue)
                return
            }
            let index = streams.index(forKey: stream)
            receivedBlock(of: stream, at: index, status)
            receivedEnd(header, at: index)
        case NGHTTP2_DATA:
            receivedEnd(header, at: streams.index(forKey: stream))
        case NGHTTP2_SETTINGS:
            guard header.flags & UInt8(NGHTTP2_FLAG_ACK.rawValue) == 0 else { return }
            hasRemoteSettings = true
            events.append(.settings)
        case NGHTTP2_GOAWAY:
            let goAway = unsafe frame.goaway
            let debugData = unsafe Array(UnsafeBufferPointer(start: goAway.opaque_data, count: goAway.opaque_data_len))
            unsafe events.append(
                .goAway(lastStream: goAway.last_stream_id, HTTP2ErrorCode(rawValue: goAway.error_code), debugData: debugData))
        case NGHTTP2_PING:
            guard header.flags & UInt8(NGHTTP2_FLAG_ACK.rawValue) != 0 else { return }
            let payload = unsafe withUnsafeBytes(of: frame.ping.opaque_data) { unsafe $0.loadUnaligned(as: UInt64.self) }
            events.append(.pingAcknowledged(UInt64(bigEndian: payload)))
        default: break
        }
    }

    private mutating func receivedBlock(of stream: Int32, at index: Index?, _ status: Int?) {
        var received = HTTP2Headers()
        swap(&received, &block)
        guard let index, !streams.values[index].tooLarge else { return }
        // Trailers have no pseudo-header fields. 1xx responses are not used.
        switch role {
        case .server: guard received.count > 0, received[":method"] != nil else { return }
        case .client: guard let status, status >= 200 else { return }
        }
        events.append(.headers(stream: stream, received))
    }

    private mutating func receivedEnd(_ header: nghttp2_frame_hd, at index: Index?) {
        guard header.flags & UInt8(NGHTTP2_FLAG_END_STREAM.rawValue) != 0 else { return }
        controlFrames = 0
        bytesSinceRequest = 0
        guard let index else { return }
        streams.values[index].ended = true
        events.append(.end(stream: header.stream_id))
    }

    // MARK: Outgoing

    fileprivate mutating func sent(_ header: nghttp2_frame_hd, _ session: OpaquePointer?) {
        guard role == .server, header.flags & UInt8(NGHTTP2_FLAG_END_STREAM.rawValue) != 0,
            header.type == UInt8(NGHTTP2_HEADERS.rawValue) || header.type == UInt8(NGHTTP2_DATA.rawValue)
        else { return }
        guard let index = streams.index(forKey: header.stream_id) else { return }
        streams.values[index].finished = true
        // Answered before the request was complete: ask the peer to stop sending (RFC 9113, 8.1).
        if !streams.values[index].ended {
            unsafe _ = nghttp2_submit_rst_stream(
                session, UInt8(NGHTTP2_FLAG_NONE.rawValue), header.stream_id, HTTP2ErrorCode.noError.rawValue)
        }
    }

    static func bodyProvider() -> nghttp2_data_provider {
        unsafe nghttp2_data_provider(source: nghttp2_data_source()) { _, stream, buffer, length, flags, _, owner in
            var count = 0
            unsafe _ = Self.with(owner) { session in
                unsafe count = session.fill(UnsafeMutableRawBufferPointer(start: buffer, count: length), stream, flags!)
            }
            return count
        }
    }

    private mutating func fill(
        _ buffer: UnsafeMutableRawBufferPointer, _ stream: Int32, _ flags: UnsafeMutablePointer<UInt32>
    ) -> Int {
        guard let index = streams.index(forKey: stream) else {
            unsafe flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue
            return 0
        }
        return unsafe streams.values[index].fill(buffer, flags)
    }

    fileprivate mutating func closed(_ stream: Int32, _ code: HTTP2ErrorCode, _ session: OpaquePointer?) {
        guard var state = streams.removeValue(forKey: stream) else { return }
        // A response may hold a capability, so a server wipes its body, of which this is the only copy. A client still holds its own copy.
        if role == .server, !state.isShared { Linux.wipe(&state.outgoing) }
        let reason = state.malformed ? .protocolError : state.unsent && role == .client ? .refusedStream : code
        events.append(.closed(stream: stream, reason))
        guard role == .server else { return }
        // Detects rapid reset, by the peer or provoked from us, by comparison with answered streams instead of a clock.
        if state.finished { wastedStreams = max(0, wastedStreams - 1) } else { unsafe wasted(session) }
    }
}

extension HTTP2Session.Stream {
    fileprivate mutating func fill(_ buffer: UnsafeMutableRawBufferPointer, _ flags: UnsafeMutablePointer<UInt32>) -> Int {
        let count = min(buffer.count, outgoing.count - sent)
        unsafe outgoing.withUnsafeBytes { bytes in
            unsafe buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[sent..<sent + count]))
        }
        sent += count
        if sent == outgoing.count { unsafe flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
        return count
    }
}

/// An allocator for nghttp2 that wipes freed memory: header blocks and their Huffman codes hold device tokens.
private enum WipingMemory {
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
