import CLlhttp

/// Owns a machine and its llhttp. No access to the machine is held while llhttp runs: its callbacks write to it.
@safe struct ParserHandle: ~Copyable {
    private let llhttp: UnsafeMutablePointer<llhttp_t>
    let machine: UnsafeMutablePointer<Machine>

    init(isServer: Bool, limits: MessageLimits) {
        unsafe llhttp = UnsafeMutablePointer<llhttp_t>.allocate(capacity: 1)
        unsafe llhttp_init(llhttp, isServer ? HTTP_REQUEST : HTTP_RESPONSE, Callbacks.settings)
        unsafe machine = UnsafeMutablePointer<Machine>.allocate(capacity: 1)
        unsafe machine.initialize(to: Machine(llhttp: llhttp, isServer: isServer, limits: limits))
        unsafe llhttp.pointee.data = UnsafeMutableRawPointer(machine)
    }

    deinit {
        unsafe machine.deinitialize(count: 1)
        unsafe machine.deallocate()
        unsafe llhttp.deallocate()
    }

    func parse(_ bytes: Span<UInt8>) -> ParseOutcome {
        if unsafe machine.pointee.phase == .failed { return unsafe machine.pointee.fail() }
        if unsafe machine.pointee.phase == .complete { return .complete(consumed: 0) }
        if bytes.count == 0 { return .incomplete }
        return unsafe bytes.withUnsafeBytes { unsafe parse($0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
    }

    private func parse(_ bytes: UnsafePointer<CChar>, _ count: Int) -> ParseOutcome {
        guard unsafe machine.pointee.prepare(bytes, count) else { return unsafe machine.pointee.fail() }
        var done = 0
        switch unsafe machine.pointee.readMethod(bytes, count) {
        case .direct: break
        case .refused: return unsafe machine.pointee.fail()
        case .incomplete: return unsafe machine.pointee.checkProgress(untouched: 0) ? .incomplete : machine.pointee.fail()
        case .read(let line, let count):
            done = count
            let result = unsafe line.withUnsafeBytes { line in
                unsafe llhttp_execute(llhttp, line.baseAddress!.assumingMemoryBound(to: CChar.self), line.count)
            }
            guard result == HPE_OK else { return unsafe machine.pointee.fail() }
        }
        while true {
            let result = unsafe llhttp_execute(llhttp, bytes + done, count - done)
            guard result == HPE_OK || result == HPE_PAUSED else { return unsafe machine.pointee.fail() }
            done = unsafe result == HPE_OK ? count : llhttp_get_error_pos(llhttp) - bytes
            guard unsafe machine.pointee.checkProgress(untouched: count - done) else { return unsafe machine.pointee.fail() }
            if result == HPE_OK { return .incomplete }
            if unsafe machine.pointee.phase == .complete { return .complete(consumed: done) }
            guard unsafe machine.pointee.endChunkHeader(bytes + done, count - done) else { return unsafe machine.pointee.fail() }
            unsafe llhttp_resume(llhttp)
        }
    }

    /// The stream ended. A response without a length ends with it.
    func finish() -> ParseOutcome {
        // llhttp knows nothing of what was refused here, and would end it well.
        if unsafe machine.pointee.phase != .complete && machine.pointee.phase != .failed { _ = unsafe llhttp_finish(llhttp) }
        return unsafe machine.pointee.phase == .complete ? .complete(consumed: 0) : machine.pointee.fail()
    }
}
