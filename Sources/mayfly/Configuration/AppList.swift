import Courier
import Linux
import TLS
import Vocabulary

/// The file that `--apns-apps` names: one app a line, the first being meant where nobody names another.
///
/// ```
/// # bundle id           environments         by
/// org.example.app       production,sandbox   key AuthKey_ABC123DEFG.p8 ABC123DEFG DEF123GHIJ
/// org.example.other     production           certificate other.p12 passphrase.txt
/// ```
/// Files are named from the list's folder. A certificate's passphrase file may be left out.
enum AppList {
    static func read(_ list: GivenFile) throws -> [APNsApp] {
        let text = try list.read(limit: 1_048_576)
        guard let text = String(validating: text, as: UTF8.self) else { throw list.failure("is not UTF-8 text") }
        var apps: [APNsApp] = []
        var keys: [String: (path: String, key: APNsApp.TeamKey)] = [:]
        var listed: [String: Set<PushEnvironment>] = [:]
        for (number, line) in text.split(omittingEmptySubsequences: false, whereSeparator: { $0 == "\n" || $0 == "\r\n" })
            .enumerated()
        {
            let words = line.split(whereSeparator: { $0 == " " || $0 == "\t" || $0 == "\r" }).map(String.init)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            do {
                let app = try app(words, "\(list), line \(number + 1)", folder: File.folder(of: list.path), &keys)
                // By two ways would leave to chance which one is used.
                guard app.environments.isDisjoint(with: listed[app.topic, default: []]) else {
                    throw UsageError("this app and environment already have a line")
                }
                listed[app.topic, default: []].formUnion(app.environments)
                apps.append(app)
            } catch let error as UsageError {
                throw CommandFailed("\(list), line \(number + 1): \(error)")
            }
        }
        guard !apps.isEmpty else {
            throw list.failure("names no app. A line is BUNDLE-ID ENVIRONMENTS key|certificate FILE …")
        }
        return apps
    }

    private static func app(
        _ words: [String], _ place: String, folder: String, _ keys: inout [String: (path: String, key: APNsApp.TeamKey)]
    ) throws -> APNsApp {
        guard words.count >= 4 else {
            throw UsageError("a line is BUNDLE-ID ENVIRONMENTS key FILE KEY-ID TEAM-ID, or … certificate FILE [PASSPHRASE-FILE]")
        }
        let file = GivenFile(words[3], place, in: folder)
        let environments = try environments(words[1])
        let identity: APNsApp.Identity
        switch (words[2], words.count) {
        case ("key", 6):
            // One key for several apps is one provider to Apple, and signs one token.
            let name = words[5] + "." + words[4]
            if let known = keys[name], known.path == file.path {
                identity = .key(known.key)
                break
            }
            let key: APNsApp.TeamKey
            let signing = try APNsApp.signingKey(file)
            do throws(CourierError) {
                key = try APNsApp.TeamKey(key: signing, keyID: words[4], teamID: words[5])
            } catch { throw UsageError("\(error)") }
            if let known = keys[name], try known.key.key.publicKeyPEM() != key.key.publicKeyPEM() {
                throw UsageError("this key id and team have a different key in a line above")
            }
            keys[name] = (file.path, key)
            identity = .key(key)
        case ("certificate", 4), ("certificate", 5):
            let passphrase = words.dropFirst(4).first.map {
                GivenFile($0, "\(place), the passphrase's file", in: folder, isSecret: true)
            }
            let certificate = try APNsApp.certificate(file, passphrase: passphrase)
            do throws(ClientCertificate.LacksEnvironment) {
                try certificate.check(isFor: environments)
            } catch { throw UsageError("\(file): \(error)") }
            identity = .certificate(certificate)
        default:
            throw UsageError(
                "the environments must be followed by key FILE KEY-ID TEAM-ID, or by certificate FILE [PASSPHRASE-FILE]")
        }
        return APNsApp(
            topic: try APNsApp.bundleID(words[0], "the first word"), environments: environments, identity: identity)
    }

    private static func environments(_ text: String) throws -> Set<PushEnvironment> {
        let names = text.split(separator: ",", omittingEmptySubsequences: false)
        return try Set(
            names.map { name in
                switch name {
                case "production": .production
                case "sandbox", "development": .sandbox
                default: throw UsageError("environments must be production, sandbox, or both separated by a comma")
                }
            })
    }
}
