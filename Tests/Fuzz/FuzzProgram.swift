/// libFuzzer, whose `main` this program uses, calls this function with each input.
@c(LLVMFuzzerTestOneInput) @safe
public func fuzzOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    FuzzTarget.chosen.run(unsafe Array(UnsafeBufferPointer(start: bytes, count: count)))
    return 0
}
