import HTTP1
import HTTPServer
import Linux
import Testing

@testable import API

@Suite struct BackEndsTests {
    private func index(_ text: String, _ address: String) throws -> Int? {
        try #require(BackEnds(text)).index(of: #require(SocketAddress(numeric: address, port: 1)))
    }

    @Test func addressesAndNetworksMatch() throws {
        let named = "10.0.0.7, 192.168.4.0/22,2001:db8:1::/48"
        #expect(try index(named, "10.0.0.7") == 0)
        #expect(try index(named, "10.0.0.8") == nil)
        #expect(try index(named, "192.168.7.255") == 1)
        #expect(try index(named, "192.168.8.0") == nil)
        #expect(try index(named, "2001:db8:1:ffff::1") == 2)
        #expect(try index(named, "2001:db8:2::1") == nil)
        #expect(try index(named, "::ffff:10.0.0.7") == 0)
        #expect(try index("", "10.0.0.7") == nil)
        #expect(try index("certificates", "10.0.0.7") == 0)
        #expect(BackEnds(named)?.index(of: .unix("")) == nil)
    }

    @Test func otherTextIsRefused() {
        for text in ["10.0.0.0/33", "10.0.0.0/0", "10.0.0.0/", "example.org", "10.0.0.1/8/8", "2001:db8::/129", "10.0.0"] {
            #expect(BackEnds(text) == nil, "\(text)")
            #expect(BackEnds.fault(in: "certificates, 10.0.0.7,\(text)")?.hasPrefix("number 3 of 3 ") == true, "\(text)")
        }
    }
}
