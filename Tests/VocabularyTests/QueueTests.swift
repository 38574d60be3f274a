import Testing
import Vocabulary

@Suite struct QueueTests {
    @Test func keepsItsOrder() {
        var queue = Queue<Int>()
        var expected = 0
        for number in 0..<10_000 {
            queue.append(number)
            if number % 3 == 2 {
                #expect(queue.popFirst() == expected)
                expected += 1
            }
        }
        queue.prepend(-1)
        #expect(queue.popFirst() == -1)
        #expect(queue.extract { $0 % 2 == 0 }.allSatisfy { $0 % 2 == 0 })
        while let next = queue.popFirst() { #expect(next % 2 == 1) }
        #expect(queue.isEmpty)
        queue.prepend(7)
        #expect(queue.popFirst() == 7)
        #expect(queue.popFirst() == nil)
    }

    @Test func memoryOfABurstIsGivenBack() {
        var queue = Queue<Int>()
        for count in [1, 1_024, 1_025, 5_000] {
            queue.append(contentsOf: 0..<count)
            #expect(queue.count == count && queue.first == 0)
            for number in 0..<count { #expect(queue.popFirst() == number) }
            #expect(queue.first == nil && queue.popFirst() == nil)
        }
    }
}
