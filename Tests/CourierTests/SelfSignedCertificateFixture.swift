import TLS

enum SelfSignedCertificateFixture {
    /// An authority that has signed nothing here.
    static func other() throws -> [UInt8] { try SelfSignedCertificate.make(names: ["127.0.0.1"], days: 1).certificate }
}
