import CWslay

/// The C functions wslay calls, each one line into the machine.
enum Callbacks {
    static var table: wslay_event_callbacks {
        var calls = wslay_event_callbacks()
        unsafe calls.recv_callback = { _, target, capacity, _, user in unsafe Callbacks.machine(user).pull(target!, capacity) }
        unsafe calls.send_callback = { _, bytes, count, _, user in
            unsafe Callbacks.machine(user).push(bytes!, count)
            return count
        }
        unsafe calls.genmask_callback = { _, target, count, _ in
            for index in 0..<count { unsafe target![index] = UInt8.random(in: .min ... .max) }
            return 0
        }
        unsafe calls.on_frame_recv_start_callback = { _, frame, user in
            unsafe Callbacks.machine(user).beginFrame(
                opcode: frame!.pointee.opcode, isFinal: frame!.pointee.fin != 0, count: frame!.pointee.payload_length)
        }
        unsafe calls.on_frame_recv_chunk_callback = { _, chunk, user in
            unsafe Callbacks.machine(user).takeChunk(chunk!.pointee.data, chunk!.pointee.data_length)
        }
        unsafe calls.on_msg_recv_callback = { _, message, user in
            let payload = unsafe UnsafeBufferPointer(start: message!.pointee.msg, count: message!.pointee.msg_length)
            unsafe Callbacks.machine(user).endMessage(opcode: message!.pointee.opcode, payload.span)
        }
        return calls
    }

    private static func machine(_ user: UnsafeMutableRawPointer?) -> WebSocketMachine {
        unsafe Unmanaged<WebSocketMachine>.fromOpaque(user!).takeUnretainedValue()
    }
}
