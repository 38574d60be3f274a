import Linux

/// Debian's `openssl`, which makes certificates and files that this project did not.
public struct OpenSSLProgram {
    public let folder: String

    public init() throws { folder = try File.makeTemporaryFolder() }

    public func end() { try? File.removeTree(folder) }

    public struct Failed: Error { let arguments: [String] }

    /// `file:` before an argument stands for a file of the folder.
    public func run(_ arguments: String...) throws { try run(arguments) }

    public func run(_ arguments: [String]) throws {
        let arguments = arguments.map { $0.replacingPrefix("file:", with: folder + "/") }
        var output = [UInt8](repeating: 0, count: 4096)
        var span = output.mutableSpan
        guard
            case .ended(.status(0), _) = try ChildProcess.read(
                "/usr/bin/openssl", arguments: arguments, into: &span, deadlineMs: 20_000)
        else { throw Failed(arguments: arguments) }
    }

    public func read(_ name: String) throws -> [UInt8] { try File.read(folder + "/" + name, limit: 1 << 20) }

    /// `NAME.pem` and `NAME.key`: a push certificate as Apple makes them, signed by itself, valid from 2020 to 2120.
    /// - Parameter topics: what the extension lists; nil: there is none.
    public func makeCertificate(
        _ name: String, userID: String? = "com.example.app", topics: [String]? = nil, from: String = "20200101000000Z",
        to: String = "21200101000000Z"
    ) throws {
        var text = """
            [ca]
            default_ca = own
            [own]
            dir = \(folder)
            database = \(folder)/index.txt
            new_certs_dir = \(folder)
            rand_serial = yes
            default_md = sha256
            policy = any
            unique_subject = no
            x509_extensions = extensions
            [any]
            UID = optional
            commonName = supplied
            [req]
            distinguished_name = subject
            prompt = no
            [subject]
            \(userID.map { "UID = \($0)" } ?? "")
            CN = Apple Push Services
            [extensions]
            extendedKeyUsage = clientAuth
            """
        if let topics {
            text += "\n1.2.840.113635.100.6.3.6 = ASN1:SEQUENCE:list\n[list]\n"
            for (index, topic) in topics.enumerated() {
                text += "topic\(index) = UTF8:\(topic)\nkind\(index) = SEQUENCE:kind\n"
            }
            text += "[kind]\nword = UTF8:app\n"
        }
        try File.write(folder + "/openssl.cnf", Array(text.utf8).span, mode: 0o600)
        try File.write(folder + "/index.txt", [UInt8]().span, mode: 0o600)
        try run(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "file:openssl.cnf",
            "-keyout",
            "file:\(name).key", "-out", "file:\(name).csr")
        try run(
            "ca", "-batch", "-selfsign", "-notext", "-config", "file:openssl.cnf", "-keyfile", "file:\(name).key", "-in",
            "file:\(name).csr", "-out", "file:\(name).pem", "-startdate", from, "-enddate", to)
    }
}

extension String {
    fileprivate func replacingPrefix(_ prefix: String, with other: String) -> String {
        hasPrefix(prefix) ? other + dropFirst(prefix.count) : self
    }
}
