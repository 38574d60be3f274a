import Linux
import Testing

@testable import APNsSimulator

@Suite struct FaultTests {
    @Test func nextFaultsHappenOnceAndInOrder() {
        var plan = FaultPlan(next: [Fault(.badDeviceToken), Fault(.tooManyRequests)], always: [Fault(.internalServerError)])
        #expect(plan.take(for: "aa")?.reason == "BadDeviceToken")
        #expect(plan.take(for: "aa")?.reason == "TooManyRequests")
        #expect(plan.take(for: "aa")?.reason == "InternalServerError")
        #expect(plan.take(for: "aa")?.reason == "InternalServerError")
    }

    @Test func faultWaitsForItsToken() {
        var fault = Fault(.unregistered)
        fault.token = "bb"
        var plan = FaultPlan(next: [fault], always: [fault])
        #expect(plan.take(for: "aa") == nil)
        #expect(plan.take(for: "bb") == fault)
        #expect(plan.next == [])
        #expect(plan.take(for: "bb") == fault)
        #expect(plan.take(for: "aa") == nil)
    }

    @Test(arguments: [(0.0, 0), (0.1, 10), (0.25, 25), (1.0 / 3, 33), (0.5, 50), (1.0, 100)])
    func ratesAreExact(rate: Double, hits: Int) {
        var fault = Fault(.internalServerError)
        fault.rate = rate
        var plan = FaultPlan(always: [fault])
        #expect((0..<100).count { _ in plan.take(for: "aa") != nil } == hits)
    }

    @Test(arguments: [
        ("{}", FaultPlan()),
        (#"{"reason":"BadTopic"}"#, FaultPlan(always: [Fault(.badTopic)])),
        (
            #"{"reason":"Unregistered","timestamp":1800000000123}"#,
            FaultPlan(always: [Fault(.unregistered, timestamp: 1_800_000_000_123)])
        ),
        (
            #"{"next":[{"reason":"BadTopic"}],"always":[{"reason":"Shutdown"}]}"#,
            FaultPlan(next: [Fault(.badTopic)], always: [Fault(.shutdown)])
        ),
        (#"{"next":[{}],"reason":"Shutdown"}"#, FaultPlan(next: [Fault()], always: [Fault(.shutdown)])),
    ])
    func plansAreRead(text: String, plan: FaultPlan) throws {
        #expect(try FaultPlan(json: Array(text.utf8)) == plan)
    }

    @Test func plansRoundTrip() throws {
        var fault = Fault()
        fault.token = "aabb"
        fault.rate = 0.5
        fault.delayMs = 250
        fault.reason = "Custom\"Reason"
        fault.status = 418
        fault.timestamp = 5
        fault.body = "<html>"
        fault.retryAfter = 30
        fault.goaway = true
        fault.refuse = true
        fault.reset = true
        fault.drop = true
        fault.silent = true
        fault.stall = true
        fault.pauseMs = 8
        fault.graceful = true
        fault.accepted = true
        fault.at = .headers
        fault.timestampAs = .twice
        fault.form.interim = 103
        fault.form.pieces = 1
        fault.form.continuation = 2
        fault.form.announced = 3
        fault.form.trailers = true
        fault.form.dribbleMs = 4
        fault.form.half = true
        fault.streams = 5
        fault.window = 0
        fault.settings = 6
        fault.pings = 7
        fault.raw = [0, 255, 16]
        let plan = FaultPlan(next: [fault, Fault()], always: [fault])
        #expect(try FaultPlan(json: plan.json) == plan)
        #expect(try FaultPlan(json: FaultPlan().json) == FaultPlan())
    }

    @Test(arguments: [
        "", "[]", "1", #"{"next":{}}"#, #"{"next":[1]}"#, #"{"always":null}"#, #"{"reson":"BadTopic"}"#, #"{"reason":5}"#,
        #"{"reason":"NotOneOfApples"}"#, #"{"status":199}"#, #"{"status":600}"#, #"{"status":"400"}"#, #"{"rate":1.5}"#,
        #"{"rate":-0.1}"#,
        #"{"delayMs":-1}"#, #"{"delayMs":3600001}"#, #"{"timestamp":1.5}"#, #"{"token":"xyz"}"#, #"{"goaway":1}"#,
        #"{"silent":"yes"}"#,
        #"{"retryAfter":-1}"#, #"{"at":"start"}"#, #"{"timestampAs":"ms"}"#, #"{"interim":200}"#, #"{"pieces":0}"#,
        #"{"raw":"0"}"#,
        #"{"raw":"xy"}"#, #"{"streams":2147483648}"#, #"{"window":-1}"#, #"{"stall":1}"#, #"{"pings":0}"#,
    ])
    func invalidPlansAreRefused(text: String) {
        #expect(throws: FaultPlan.Malformed.self) { try FaultPlan(json: Array(text.utf8)) }
    }

    @Test func unknownReasonsNeedAStatus() throws {
        #expect(try FaultPlan(json: Array(#"{"reason":"NewOne","status":400}"#.utf8)).always.first?.answerStatus == 400)
    }
}

@Suite struct PushLogTests {
    private func push(_ number: Int) -> PushLog.Entry {
        let draft = Draft(path: "/3/device/AA", fields: [("authorization", "x"), ("a\"", "b")], body: #"{"n":1}"#)
        return PushLog.Entry(request: draft.request, id: Array("\(number)".utf8), at: 1_709_210_096_007)
    }

    @Test func logIsWrittenAsJSON() {
        var log = PushLog(capacity: 10)
        log.append(push(1))
        var text: [UInt8] = []
        for push in log.pushes { push.append(to: &text) }
        #expect(
            String(decoding: text, as: UTF8.self)
                == #"{"token":"aa","headers":{"a\"":"b","apns-id":"1"},"payload":{"n":1},"at":"2024-02-29T12:34:56.007Z"}"#)
        log.removeAll()
        #expect(log.pushes == [])
    }

    @Test func logKeepsTheLatest() {
        var log = PushLog(capacity: 10)
        for number in 0..<1000 { log.append(push(number)) }
        #expect(log.pushes.map { $0.headers["apns-id"] } == (990..<1000).map { "\($0)" })
        log.removeAll()
        for number in 0..<15 { log.append(push(number)) }
        #expect(log.pushes.map { $0.headers["apns-id"] } == (5..<15).map { "\($0)" })
    }

    @Test func logWithoutCapacityKeepsNothing() {
        var log = PushLog(capacity: 0)
        for number in 0..<3 { log.append(push(number)) }
        #expect(log.pushes == [])
    }
}
