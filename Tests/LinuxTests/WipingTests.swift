import Linux
import Testing

@Suite struct WipingTests {
    @Test func theFrontOrAllOfAnArrayIsZeroed() {
        var bytes: [UInt8] = [1, 2, 3, 4]
        wipe(&bytes, first: 2)
        #expect(bytes == [0, 0, 3, 4])
        wipe(&bytes)
        #expect(bytes == [0, 0, 0, 0])
        var none: [UInt8] = []
        wipe(&none)
        #expect(none.isEmpty)
    }
}
