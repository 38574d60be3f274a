import Testing

@testable import Linux

/// Programs that are run for what they print.
@Suite struct ChildOutputTests {
    private func run(
        _ script: String, room: Int = 64, deadlineMs: UInt64 = 10_000
    ) throws -> (outcome: ChildProcess.Outcome, text: String) {
        var bytes = [UInt8](repeating: 0, count: room)
        var span = bytes.mutableSpan
        let outcome = try ChildProcess.read("/bin/sh", arguments: ["-c", script], into: &span, deadlineMs: deadlineMs)
        guard case .ended(_, let count) = outcome else { return (outcome, "") }
        return (outcome, String(decoding: bytes[..<count], as: UTF8.self))
    }

    @Test func whatItPrintsIsReadAndItsErrorsAreNot() throws {
        let (outcome, text) = try run("printf one; echo no >&2; sleep 0.05; printf two; exit 3")
        #expect(outcome == .ended(.status(3), count: 6) && text == "onetwo")
        #expect(try run("exit 0").outcome == .ended(.status(0), count: 0))
    }

    @Test func itsInputIsEmptyAndItIsItsOwnGroup() throws {
        #expect(try run("cat; echo $$; ps -o pgid= -p $$ | tr -d ' '").text.split(separator: "\n").count == 2)
        let lines = try run("cat; echo $$; ps -o pgid= -p $$ | tr -d ' '").text.split(separator: "\n")
        #expect(lines[0] == lines[1])
    }

    @Test func tooMuchIsCutAndEndsIt() throws {
        let begin = Clock.monotonicMs
        let (outcome, text) = try run("exec cat /dev/zero", room: 10)
        guard case .ended(.killed(.pipe), count: 10) = outcome else {
            Issue.record("\(outcome) \(text.count)")
            return
        }
        #expect(Clock.monotonicMs - begin < 5_000)
    }

    @Test(arguments: ["sleep 60", "exec >&-; sleep 60", "sleep 60 & exit 0"])
    func itIsKilledWithAllItStartedWhenTheTimeIsOver(script: String) throws {
        let begin = Clock.monotonicMs
        #expect(try run(script, deadlineMs: 200).outcome == .tooSlow)
        #expect((200..<5_000).contains(Clock.monotonicMs - begin))
    }

    @Test func aMissingProgramIsAnError() {
        var bytes: [UInt8] = [0]
        #expect(throws: Errno.self) {
            var span = bytes.mutableSpan
            _ = try ChildProcess.read("/nonexistent/program", arguments: [], into: &span, deadlineMs: 1)
        }
    }
}
