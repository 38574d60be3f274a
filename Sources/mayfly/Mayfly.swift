import Linux

/// The command line. Exit 0: good. 1: a check failed or something could not be done. 2: bad use.
@main
struct Mayfly {
    static let version = "0.1.0"

    static func main() async {
        let words = Array(CommandLine.arguments.dropFirst())
        do {
            try await run(words)
        } catch let error as UsageError {
            Terminal.error("mayfly: \(error)")
            Terminal.exit(2)
        } catch let error as CheckFailed {
            Terminal.error("\(error)")
            Terminal.exit(1)
        } catch {
            Terminal.error("mayfly: \(error)")
            Terminal.exit(1)
        }
    }

    private static func run(_ words: [String]) async throws {
        let rest = Array(words.dropFirst())
        // Before any thread exists, so that all of them leave these signals to the loop that waits for them.
        if ["serve", "demo", "apns-simulator"].contains(words.first) {
            Signal.block([.terminate, .interrupt])
            Signal.ignore(.pipe)
        }
        switch words.first {
        case "serve": try await ServeCommand.run(rest)
        case "demo": try await DemoCommand.run(rest)
        case "keys": try KeysCommand.run(rest)
        case "audit": try await AuditCommand.run(rest)
        case "policy": try PolicyCommand.run(rest)
        case "apns": try APNsCommand.run(rest)
        case "apns-simulator": try await SimulatorCommand.run(rest)
        case "--version", "version": print("mayfly \(version)")
        case nil, "--help", "help": print(usage)
        case let word?: throw UsageError("\(word) is no command.\n\(usage)")
        }
    }

    static let usage = """
        usage: mayfly COMMAND [FLAGS]
          serve                     run the broker
          demo [--stay]             broker and APNs simulator with throw-away keys; plays one room's story, or stays
          keys init|throwaway|show  make or show the state folder's keys
          audit verify DIR|URL      check a log: signature, tiles, entries, the life of each token
          audit show DIR|URL        print a log's entries
          policy lint FILE...       explain what a policy may not say
          policy show [FILE|NAME]   a policy's limits, pushes, and the odds of guessing a join code
          apns jwt                  print a provider token
          apns-simulator            an APNs for tests and development
        Each command has --help.
        """
}

/// A check that came out wrong: exit 1, and only this text.
struct CheckFailed: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}
