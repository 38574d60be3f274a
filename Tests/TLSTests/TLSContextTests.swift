import Testing

@testable import TLS

@Suite struct TLSContextTests {
    @Test func refusesAKeyOfAnotherCertificate() throws {
        let one = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
        let other = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
        #expect(throws: TLSError.keyMismatch) {
            _ = try TLSContext.server(certificateChain: one.certificate, privateKey: other.privateKey.span, alpn: [])
        }
    }

    @Test(arguments: [[], Array("not PEM".utf8), Array("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".utf8)])
    func refusesWhatIsNotACertificate(text: [UInt8]) throws {
        let identity = try SelfSignedCertificate.make(names: ["localhost"], days: 1)
        #expect(throws: TLSError.badCertificate) {
            _ = try TLSContext.server(certificateChain: text, privateKey: identity.privateKey.span, alpn: [])
        }
        #expect(throws: TLSError.badCertificate) { _ = try TLSContext.client(trust: .authorities(text), alpn: []) }
        #expect(throws: TLSError.badKey) {
            _ = try TLSContext.server(certificateChain: identity.certificate, privateKey: text.span, alpn: [])
        }
    }

    @Test func aBrokenCertificateAfterAGoodOneIsNotIgnored() throws {
        let good = try SelfSignedCertificate.make(names: ["localhost"], days: 1).certificate
        let text = good + Array("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".utf8)
        #expect(throws: TLSError.badCertificate) { _ = try TLSContext.client(trust: .authorities(text), alpn: []) }
    }

    @Test(arguments: ["", String(repeating: "x", count: 256)])
    func refusesProtocolNamesThatDontFit(name: String) {
        #expect(throws: TLSError.badName) { _ = try TLSContext.client(trust: .system, alpn: [name]) }
    }

    @Test(arguments: ["", "a,DNS:b", "a b", "é", "dir/x"])
    func refusesCertificateNamesThatArentNames(name: String) {
        #expect(throws: TLSError.badName) { _ = try SelfSignedCertificate.make(names: [name], days: 1) }
    }

    @Test func refusesACertificateWithoutNames() {
        #expect(throws: TLSError.badName) { _ = try SelfSignedCertificate.make(names: [], days: 1) }
    }
}
