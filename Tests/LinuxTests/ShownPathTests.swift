import Testing

@testable import Linux

@Suite struct ShownPathTests {
    private let folder: String

    init() throws { folder = try File.makeTemporaryFolder(prefix: "shown") }

    @Test func pathsAreShown() throws {
        try File.write(folder + "/there", [1].span, mode: 0o600)
        try File.write(folder + "/key @ home+1.p8", [1].span, mode: 0o600)
        for path in [
            "/", ".", "..", "/tmp", folder, folder + "/none", folder + "/none/deeper.p8", "/none/such", "./none", "../none/x.p8",
            folder + "/there/" + String(repeating: "e0", count: 32) + ".json",
        ] {
            #expect("\(ShownPath(path))" == path)
        }
        #expect("\(ShownPath("there", in: folder))" == "there")
        #expect("\(ShownPath("there/deeper", in: folder))" == "there/deeper")
        #expect("\(ShownPath(folder + "/there", in: "/none"))" == folder + "/there")
        #expect("\(ShownPath(folder + "/key @ home+1.p8"))" == "\"\(folder)/key @ home+1.p8\"")
    }

    /// A name in the working directory, which has no slash.
    @Test(arguments: ["nope.json", "AuthKey_ABC123DEFG.p8", "login.pub", "nosuch.vkey", "0.tlog-proof", "mine-2.rooms.json"])
    func namesOfFilesAreShown(name: String) {
        #expect("\(ShownPath(name))" == name)
        #expect("\(ShownPath(name, in: folder))" == name)
    }

    @Test func shortWordsAreHiddenWithAHint() {
        for word in ["nosuch", "hunter2", "Tr0ub4dor-passphrase", "var-less", "name.exe", "a1b2c3d4e5f60718.pem"] {
            #expect(
                "\(ShownPath(word))"
                    == "<\(word.utf8.count) bytes, hidden because they could be a secret: write ./NAME to see them>")
            #expect("\(ShownPath("./" + word))" == "./" + word)
        }
    }

    /// What is wrong with a value is said, and not the value.
    @Test(arguments: [
        ("/none/such/key.p8 ", "that end with a blank: remove it"), ("/none/such/key.p8\t", "that end with a blank: remove it"),
        (" /none/such/key.p8", "that begin with a blank: remove it"),
        ("\"/none/such/key.p8\"", "in quotation marks: remove them"),
        ("'/none/such/key.p8'", "in quotation marks: remove them"),
        ("~/key.p8", "that begin with ~, which only a shell replaces"),
        ("\"", "that are not a path"), ("~", "that are not a path"),
    ]) func shapesThatAreNoPathAreNamed(path: String, shape: String) {
        #expect("\(ShownPath(path))" == "<\(path.utf8.count) bytes \(shape)>")
    }

    @Test func controlCharactersAreEscaped() throws {
        for name in ["a\nb", "a\u{1b}[31m", "a\u{9b}b", "a\u{2028}b", "a\"b\\"] {
            let path = folder + "/" + name
            #expect(!ShownPath(path).description.contains(folder), "nothing is there")
            try File.write(path, [1].span, mode: 0o600)
            let shown = ShownPath(path).description
            #expect(shown.hasPrefix("\"\(folder)/a") && shown.hasSuffix("\""))
            #expect(!shown.unicodeScalars.contains { $0.value < 0x20 || (0x7f...0x9f).contains($0.value) || $0.value == 0x2028 })
        }
    }

    /// Keys, passphrases, tokens and provider tokens, also after a slash, which base64 contains.
    @Test(arguments: [
        "", "/Tr0ub4dor", "MIGTAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBHkwdwIBAQQg",
        "MIGTAgEAMBMG/ByqGSM49AgEGCCqG/SM49AwEHBHkwdwIBAQQg",
        "-----BEGIN PRIVATE KEY-----\nMIGTAgEA\n-----END PRIVATE KEY-----\n",
        "/dRzIo2yU7cfkzH9vGNXiGlnkqLA0R2vwNKzS9zbhyE=", "/dRzIo2y/7cfkzH9vGNXiGlnkqLA0R2vwNKzS9zbhyE=",
        "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1", "/tmp/a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
        "eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl",
        "/tmp/MIGTAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBHkwdwIBAQQgMIGTAgEAMBMGByqGSM49AgEGCCqGSM49",
        "a\0b", "correct horse battery/staple", "correct horse battery.txt", "-----BEGIN PRIVATE KEY-----\nMIGTAgEA.pem",
        "dRzIo2yU7cfkzH9vGNXiGlnkqLA0R2vwNKzS9zbhyE.key", "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1c2VyLTEifQ.json",
    ]) func secretsAreNotShown(secret: String) throws {
        let said = "<\(secret.utf8.count) bytes that are not a path>"
        #expect("\(ShownPath(secret))" == said)
        if !secret.hasPrefix("/") { #expect("\(ShownPath(secret, in: folder))" == said) }
        let error = try #require(throws: Errno.self) { try File.read(secret, limit: 1) }
        // The kernel doesn't see the bytes after a zero.
        if !secret.contains("\0") { #expect(error.description == "open \(said): \(error.reason)") }
    }
}
