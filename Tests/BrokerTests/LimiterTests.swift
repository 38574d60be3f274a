import Testing

@testable import Broker

@Suite struct LimiterTests {
    /// Starts steps that end when it says so.
    private actor Steps {
        let limiter = Limiter(3)
        private(set) var begun: [Int] = []

        var count: Int { limiter.count }

        func start(_ number: Int) -> Task<Void, Never> {
            let started = Task {
                await limiter.acquire()
                begun.append(number)
            }
            return started
        }

        func end() { limiter.release() }
    }

    /// A step that ends makes room for one, in the order in which they came.
    @Test func fewRunAtATime() async {
        let steps = Steps()
        var tasks: [Task<Void, Never>] = []
        for number in 0..<10 {
            tasks.append(await steps.start(number))
            while await steps.count <= number { await Task.yield() }
        }
        for number in 0..<3 { await tasks[number].value }
        #expect(await steps.begun == [0, 1, 2])
        for number in 3..<10 {
            await steps.end()
            await tasks[number].value
            #expect(await steps.begun == Array(0...number))
        }
        for left in [2, 1, 0] {
            await steps.end()
            #expect(await steps.count == left)
        }
    }
}
