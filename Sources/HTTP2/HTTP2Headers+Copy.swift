extension HTTP2Headers {
    /// All names and values, one after the other as `forEachField` shows them, in bytes that nobody wipes: for blocks without secrets.
    public func copyBytes() -> [UInt8] {
        unsafe bytes.withUnsafeBufferPointer { source in
            unsafe [UInt8](unsafeUninitializedCapacity: source.count) { target, count in
                if let start = source.baseAddress { unsafe target.baseAddress!.initialize(from: start, count: source.count) }
                count = source.count
            }
        }
    }
}
