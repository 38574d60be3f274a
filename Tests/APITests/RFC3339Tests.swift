import Testing

@testable import API

@Suite struct RFC3339Tests {
    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_001, "2024-03-01T00:00:00.001Z"), (4_102_444_799_123, "2099-12-31T23:59:59.123Z"),
        ] as [(UInt64, String)])
    func text(_ ms: UInt64, _ text: String) { #expect(RFC3339.text(ms) == text) }
}
