import Testing

@testable import AuditPage

@Suite struct AuditReportTests {
    private func html(_ files: [AuditReport.LogFile], vkey: String? = nil, about: String = "") -> String {
        var bytes: [UInt8] = []
        AuditReport(files: files, vkey: vkey, about: about).write { bytes += $0 }
        return String(decoding: bytes, as: UTF8.self)
    }

    @Test func asksForNothingElse() {
        let page = html([("checkpoint", [1, 2, 3])])
        for mark in ["src=", "'self'", "connect-src", "rel=\"stylesheet\""] { #expect(!page.contains(mark), "\(mark)") }
        #expect(page.contains("default-src 'none'; script-src 'sha256-"))
        #expect(page.contains("<script type=\"text/plain\" class=\"part\">AQID</script>"))
        #expect(page.contains("\"files\":[[\"checkpoint\",3]]"))
    }

    @Test func blocksAreCutWhereBase64IsWhole() {
        let first = [UInt8](repeating: 7, count: AuditReport.blockCount - 1)
        let page = html([("a", first), ("b", []), ("c", [1, 2, 3])])
        let blocks = page.split(separator: "class=\"part\">").dropFirst().map { $0.prefix { $0 != "<" } }
        #expect(blocks.count == 2)
        #expect(blocks[0].utf8.count == AuditReport.blockCount / 3 * 4 && blocks[1] == "AgM=")
    }

    @Test(arguments: [
        ("</script>", "\"\\u003c/script>\""), ("a\"b\\c\n", #""a\"b\\c\n""#), ("Zürich", "\"Zürich\""), ("", "\"\""),
    ])
    func textCannotLeaveItsPlace(_ text: String, _ json: String) {
        let page = html([(text, [1])], about: text)
        #expect(page.contains("{\"about\":\(json),\"vkey\":null,\"files\":[[\(json),1]]}"))
    }

    @Test func namesOfAKeyCannotEither() {
        #expect(html([], vkey: "</script><script>+1+x").contains("\"vkey\":\"\\u003c/script>\\u003cscript>+1+x\""))
    }
}
