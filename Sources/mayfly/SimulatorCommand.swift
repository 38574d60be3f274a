import APNsSimulator
import EventLoop
import Linux
import TLS

/// `mayfly apns-simulator`.
enum SimulatorCommand {
    static let keys: [Key] = [
        .apnsSimulatorListen, .apnsSimulatorControl, .apnsSimulatorCertificate, .apnsKeyPath, .apnsKeyID, .apnsTeamID,
        .apnsBundleID,
        .apnsEnvironment,
    ]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help(
                    """
                    usage: mayfly apns-simulator [FLAGS]
                    An APNs for tests and development: checks what Apple checks, keeps what it accepted in memory.
                    """, keys, shortFlags: true))
        }
        let configuration = try Configuration(
            words, environment: Environment.all, keys: keys, switches: ["with-parent"], shortFlags: true)
        guard configuration.operands.isEmpty else { throw UsageError("apns-simulator takes flags only") }
        if configuration.switches.contains("with-parent") { try ProcessControl.dieWithParent(.kill) }

        let control = try configuration.address(.apnsSimulatorControl, default: "127.0.0.1:8790")
        guard control.isLoopback else {
            throw UsageError("--control must be on loopback: it has no authentication and shows tokens")
        }
        let certificate = try pem(try configuration.required(.apnsSimulatorCertificate))
        let publicKey = try APNsSettings.signingKey(try configuration.required(.apnsKeyPath)).publicKeyPEM()
        let settings = APNsSimulator.Configuration(
            listen: try configuration.address(.apnsSimulatorListen, default: "127.0.0.1:8789"), control: control,
            certificateChain: certificate, privateKey: certificate, keyID: try configuration.required(.apnsKeyID),
            teamID: try configuration.required(.apnsTeamID),
            publicKey: try ES256.PublicKey(pem: publicKey.span),
            bundleID: try configuration.required(.apnsBundleID))

        let loop = try EventLoop(name: "simulator")
        try loop.start()
        let simulator = try APNsSimulator(settings, loop: loop)
        let addresses: APNsSimulator.Addresses
        do {
            addresses = try await simulator.start()
        } catch let error as Errno where error.isAddressInUse {
            throw CheckFailed("mayfly: \(settings.listen) or \(control) is taken: another program listens there")
        }
        Terminal.log("APNs simulator: pushes at \(addresses.apns), control at \(control)")
        await StopSignal.wait(on: loop)
        await simulator.stop()
        loop.stop()
    }

    private static func pem(_ path: String) throws -> [UInt8] {
        do {
            return try File.read(path, limit: 1_048_576)
        } catch {
            throw CheckFailed("mayfly: the certificate \(path) can't be read: \(error)")
        }
    }
}
