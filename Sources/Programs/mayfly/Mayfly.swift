import Dispatch
import Linux
import Vocabulary

/// The command line. Exit status: 0 success, 1 a failed check or operation, 2 invalid use, 3 a check that was not made.
@main
struct Mayfly {
    static let version = "0.1.0"

    static func main() {
        // This comes first because commands read keys.
        do throws(Errno) {
            try ProcessControl.keepMemoryPrivate()
        } catch {
            Terminal.error("mayfly: can't protect this process's memory from other processes: \(error)")
            ProcessControl.exit(1)
        }
        // Swift's thread pool asks for a priority that only root gets, and would tell syslog, with an address of this process's memory.
        Environment.set("LIBDISPATCH_LOG", to: "NO")
        let words = Array(CommandLine.arguments.dropFirst())
        SimulatorCommand.followParent(words)
        // Threads inherit the signal mask. Only the loop that waits for these signals may receive them.
        if ["serve", "demo", "apns-simulator"].contains(words.first) {
            Signal.block([.terminate, .interrupt])
            if words.first == "serve" { Signal.block([.hangup]) }
            Signal.ignore(.pipe)
        }
        Task.detached { ProcessControl.exit(await status(of: words)) }
        while true { DispatchSemaphore(value: 0).wait() }
    }

    private static func status(of words: [String]) async -> Int32 {
        do {
            try await run(words)
            return 0
        } catch let error as UsageError {
            ServiceLog.fail("mayfly: \(error)")
            return 2
        } catch let error as CheckFailed {
            ServiceLog.fail("\(error)")
            return error.status
        } catch {
            ServiceLog.fail("mayfly: \(error)")
            return 1
        }
    }

    private static func run(_ words: [String]) async throws {
        let rest = Array(words.dropFirst())
        switch words.first {
        case "serve": try await ServeCommand.run(rest)
        case "demo": try await DemoCommand.run(rest)
        case "check": try await CheckCommand.run(rest)
        case "keys": try await KeysCommand.run(rest)
        case "audit": try await AuditCommand.run(rest)
        case "policy": try PolicyCommand.run(rest)
        case "apns": try await APNsCommand.run(rest)
        case "push": try await PushCommand.run(rest)
        case "jwt": try await JWTCommand.run(rest)
        case "apns-simulator": try await SimulatorCommand.run(rest)
        case "drill": try await DrillCommand.run(rest)
        case "migrate": try await MigrateCommand.run(rest)
        case "--version", "version": Terminal.out("mayfly \(version)")
        case "--help", "-h", "help": Terminal.out(usage)
        case nil: throw UsageError("a command is missing.\n\(usage)")
        case let word?: throw UsageError("\(ShownWord(word)) is not a command\(Spelling.hint(word, commands))\n\(usage)")
        }
    }

    private static let commands = [
        "serve", "demo", "check", "keys", "audit", "policy", "apns", "push", "jwt", "apns-simulator", "drill", "migrate", "help",
    ]

    static let usage = """
        usage: mayfly COMMAND [FLAGS]
          serve                     run the broker
          check                     check everything that the broker needs to start and to work
          demo [--stay]             run broker and APNs simulator with throw-away keys, and play one room's story
          keys init|throwaway|show  make or show the state folder's keys
          keys renew                make a new key file after one in memory was lost
          keys rotate               close the log and begin another under another key and name
          audit verify DIR|URL      check a log: signature, tiles, entries, balances
          audit prove DIR|URL REF   write a proof of a token's purge, or of any entry by its number
          audit verify --proof FILE check a proof
          audit show DIR|URL        print a log's entries; with --ref REF one token's history
          audit watch DIR|URL       check new entries and mirrors, from an auditor's cron job
          audit report DIR|URL      write one HTML file that checks a log in the browser
          audit page DIR            write the auditor's page beside a published log
          policy lint FILE...       explain why a policy is refused
          policy show [FILE|NAME]   show limits, pushes, and the odds of guessing a join code
          policy keys               list the numbers in policies, with their bounds
          apns check                check that Apple accepts key, team and topic
          apns send [TEMPLATE]      send one push to the token on standard input
          apns explain [REASON]     explain Apple's reason, whose fault it is, what to do
          apns token                describe the shape of the token on standard input
          apns jwt [--verify]       print a provider token, or check one
          push keys FILE            make a key for Web Push
          push enable               let addresses of Web Push be stored
          push disable              switch Web Push off
          push check                send one message to the subscription on standard input
          jwt [--verify]            print a user's JWT for development, or check one
          apns-simulator            run an APNs for tests and development
          drill                     show what you could hand over now, and why no more
          migrate --database URI    make the tables in PostgreSQL; with --move, move the SQLite broker there
        Each command has --help.
        """
}
