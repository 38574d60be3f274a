import APNsSimulator
import EventLoop
import Linux
import TLS

/// `mayfly apns-simulator`: runs the APNs simulator.
enum SimulatorCommand {
    private static let keys: [Setting] = [
        .apnsSimulatorListen, .apnsSimulatorControl, .apnsSimulatorCertificate, .apnsKeyPath, .apnsKeyID, .apnsTeamID,
        .apnsBundleID,
        .apnsEnvironment,
    ]

    private static let usage = """
        usage: mayfly apns-simulator [FLAGS]
        Runs an APNs and a Web Push service for tests and development: checks what the real ones check, keeps the last accepted
        pushes in memory. docs/simulator.md
          --app FILE          another key, with its team and apps, as JSON; may be repeated
          --client-ca FILE    PEM: accept client certificates from these authorities
          --production        act as the production service. Default: the sandbox
          --web-push-http1    speak HTTP/1.1 only, like many self-hosted Web Push services; APNs is then not served
          --browsers ADDRESS  a WebSocket listener, ADDRESS:PORT on loopback, for Firefox's preference dom.push.serverURL
          --streams N         limit of open streams for a client after its first accepted push. Default: 1000
          --record FILE       append the apns-id of each accepted push, for tests that kill the simulator
        """

    /// The flag by which `demo` starts a simulator that ends with it. Its value is the demo's process id.
    static let withParent = "--with-parent="

    /// Makes a simulator end with the demo that started it. Call it on the main thread: the kernel forgets the setting when the thread ends that made it,
    /// and threads of Swift's pool end when they are idle.
    static func followParent(_ words: [String]) {
        guard words.first == "apns-simulator", let flag = words.first(where: { $0.hasPrefix(withParent) }) else { return }
        guard let parent = Int32(flag.dropFirst(withParent.count)) else { return }
        do throws(Errno) {
            try ProcessControl.dieWithParent(.kill, parent: parent)
        } catch {
            Terminal.error("mayfly: the simulator can't be tied to the demo that started it: \(error)")
            ProcessControl.exit(1)
        }
    }

    static func run(_ words: [String]) async throws {
        if words.asksForHelp { return Terminal.out(Terminal.help(usage, keys, shortFlags: true)) }
        let configuration = try Configuration(
            words, keys: keys, switches: ["production", "web-push-http1"],
            options: ["app", "browsers", "client-ca", "record", "streams", "with-parent"], shortFlags: true)
        guard configuration.operands.isEmpty else { throw UsageError("apns-simulator accepts flags only") }

        let control = try configuration.address(.apnsSimulatorControl)
        guard control.isLoopback else {
            throw configuration.invalid(
                .apnsSimulatorControl, "must be on loopback, because it has no authentication and shows tokens")
        }
        let certificate = try configuration.requiredFile(.apnsSimulatorCertificate).read(limit: 1_048_576)
        var settings = APNsSimulator.Configuration(
            listen: try configuration.address(.apnsSimulatorListen), control: control,
            certificateChain: certificate, privateKey: certificate, keys: try providerKeys(configuration),
            isSandbox: !configuration.has("production"))
        if let streams = try configuration.option("streams") {
            guard let count = UInt32(streams), (1...65_536).contains(count) else {
                throw UsageError("--streams must be a number from 1 to 65536")
            }
            settings.streams = count
        }
        settings.clientAuthorities = try configuration.option("client-ca").map {
            try GivenFile($0, "--client-ca").read(limit: 1_048_576)
        }
        settings.browsers = try configuration.option("browsers").map { text in
            guard let address = SocketAddress(parsing: text), address.isLoopback else {
                throw UsageError("--browsers must be ADDRESS:PORT on loopback, because it has no authentication")
            }
            return address
        }
        settings.isHTTP1Only = configuration.has("web-push-http1")
        settings.record = try configuration.option("record")

        let loop = try EventLoop(name: "simulator")
        try loop.start()
        let simulator = try CommandFailed.naming("the simulator can't start") { try APNsSimulator(settings, loop: loop) }
        let addresses: APNsSimulator.Addresses
        do {
            addresses = try await simulator.start()
        } catch let error as Errno {
            let names = "\(configuration.name(.apnsSimulatorListen)) or \(configuration.name(.apnsSimulatorControl))"
            throw CommandFailed(
                "\(names): can't listen: \(error). Find what listens there with `ss -ltnp`, or choose another address")
        }
        Terminal.log("APNs simulator: pushes at \(addresses.apns), control at \(control)")
        await ServiceSignals(loop: loop).waitForStop()
        await simulator.stop()
        loop.stop()
    }

    /// The key of the APNS_ settings, and one of each `--app`.
    private static func providerKeys(_ configuration: Configuration) throws -> [ProviderKey] {
        let files = configuration.repeated["app"] ?? []
        var keys = try files.map { try app(GivenFile($0, "--app")) }
        let single: [Setting] = [.apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsBundleID]
        if files.isEmpty || single.contains(where: { configuration[$0] != nil }) {
            let publicKey = try APNsApp.signingKey(try configuration.requiredFile(.apnsKeyPath)).publicKeyPEM()
            keys.append(
                ProviderKey(
                    keyID: try configuration.required(.apnsKeyID), teamID: try configuration.required(.apnsTeamID),
                    publicKey: try ES256.PublicKey(pem: publicKey.span),
                    bundleIDs: [try configuration.required(.apnsBundleID)]))
        }
        return keys
    }

    /// Reads an app. The key file's path is relative to the folder of `file`.
    private static func app(_ file: GivenFile) throws -> ProviderKey {
        let json = try file.read(limit: 65_536)
        do {
            return try ProviderKey(json: json) { name in
                try GivenFile(name, "the app \(file)", in: File.folder(of: file.path)).read(limit: 65_536)
            }
        } catch let error as ProviderKey.Malformed {
            throw CommandFailed("the app \(file) is malformed: \(error.explanation); see docs/simulator.md")
        } catch let error as CommandFailed {
            throw error
        } catch {
            throw CommandFailed("the app \(file) can't be used: \(error)")
        }
    }
}
