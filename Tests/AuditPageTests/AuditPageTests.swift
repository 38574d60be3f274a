import Linux
import Testing

@testable import AuditPage

@Suite struct AuditPageTests {
    private static let folder = "\(File.folder(of: File.folder(of: File.folder(of: #filePath))))/Sources/Edges/AuditPage"

    @Test func filesAreServedUnchanged() throws {
        let names = try File.list("\(Self.folder)/page").map { "page/\($0)" } + ["index.html"]
        #expect(Set(names) == Set(AuditPage.files.map(\.path)))
        for file in AuditPage.files { #expect(try File.read("\(Self.folder)/\(file.path)", limit: 1 << 20) == file.bytes) }
    }

    @Test func filesAreFoundByPath() {
        #expect(AuditPage.file(at: "")?.path == "index.html")
        #expect(AuditPage.file(at: "")?.contentType == "text/html; charset=utf-8")
        #expect(AuditPage.file(at: "page/start.js")?.contentType == "text/javascript; charset=utf-8")
        #expect(AuditPage.file(at: "page/style.css")?.contentType == "text/css; charset=utf-8")
        for path in ["page", "page/", "/index.html", "page/../index.html", "page/start.js/", "start.js"] {
            #expect(AuditPage.file(at: path) == nil)
        }
    }

    /// The report joins the modules in this order without their imports. So imports must have this form.
    @Test func modulesComeAfterTheirImports() throws {
        var known: Set<String> = []
        for module in AuditPage.scripts {
            for line in String(decoding: module.bytes, as: UTF8.self).split(separator: "\n") where line.hasPrefix("import ") {
                let parts = line.split(separator: "'")
                try #require(parts.count == 3 && parts[2] == ";" && parts[1].hasPrefix("./"), "\(module.path): \(line)")
                #expect(known.contains("page/\(parts[1].dropFirst(2))"), "\(module.path): \(line)")
                #expect(!line.contains(" as "), "\(module.path): \(line)")
            }
            known.insert(module.path)
        }
        for line in AuditReport.program.split(separator: "\n") {
            #expect(!line.hasPrefix("import ") && !line.hasPrefix("export ") && !line.contains("import("))
        }
        // The program must not end its script element.
        #expect(!AuditReport.program.contains("</") && !AuditReport.program.contains("<!--"))
    }

    @Test func topLevelNamesAreUnique() {
        var names: Set<Substring> = []
        for line in AuditReport.program.split(separator: "\n") {
            var words = line.split(separator: " ")[...]
            guard !line.hasPrefix(" "), !line.hasPrefix("/") else { continue }
            if words.first == "async" { words.removeFirst() }
            guard ["const", "let", "class", "function"].contains(words.first), let name = words.dropFirst().first else {
                continue
            }
            let plain = name.prefix { $0.isLetter || $0.isNumber }
            #expect(names.insert(plain).inserted, "\(plain) twice")
        }
        #expect(names.count > 50)
    }

    @Test func scriptsCreateNoMarkup() {
        for file in AuditPage.scripts {
            let text = String(decoding: file.bytes, as: UTF8.self)
            for word in [
                "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", "http://", "https://",
            ]
            where file.path != "page/dom.js" || word != "http://" {
                #expect(!text.contains(word), "\(file.path): \(word)")
            }
        }
    }

    @Test func policyIsTheSameInPageAndHeader() {
        let page = String(decoding: AuditPage.page.bytes, as: UTF8.self)
        #expect(page.contains("content=\"\(AuditPage.pagePolicy)\""))
        #expect(AuditPage.contentSecurityPolicy.hasPrefix(AuditPage.pagePolicy))
    }
}

@Suite struct AuditReportTests {
    private func html(_ files: [AuditReport.LogFile], vkey: String? = nil, about: String = "") -> String {
        var bytes: [UInt8] = []
        AuditReport(files: files, vkey: vkey, about: about).write { bytes += $0 }
        return String(decoding: bytes, as: UTF8.self)
    }

    @Test func reportRequestsNothing() {
        let page = html([("checkpoint", [1, 2, 3])])
        for mark in ["src=", "'self'", "connect-src", "rel=\"stylesheet\""] { #expect(!page.contains(mark), "\(mark)") }
        #expect(page.contains("default-src 'none'; script-src 'sha256-"))
        #expect(page.contains("<script type=\"text/plain\" class=\"part\">AQID</script>"))
        #expect(page.contains("\"files\":[[\"checkpoint\",3]]"))
    }

    @Test func onlyTheLastBlockHasPadding() {
        let first = [UInt8](repeating: 7, count: AuditReport.blockCount - 1)
        let page = html([("a", first), ("b", []), ("c", [1, 2, 3])])
        let blocks = page.split(separator: "class=\"part\">").dropFirst().map { $0.prefix { $0 != "<" } }
        #expect(blocks.count == 2)
        #expect(blocks[0].utf8.count == AuditReport.blockCount / 3 * 4 && blocks[1] == "AgM=")
    }

    @Test(arguments: [
        ("</script>", "\"\\u003c/script>\""), ("a\"b\\c\n", #""a\"b\\c\n""#), ("Zürich", "\"Zürich\""), ("", "\"\""),
    ])
    func textCannotEndItsElement(_ text: String, _ json: String) {
        let page = html([(text, [1])], about: text)
        #expect(page.contains("{\"about\":\(json),\"vkey\":null,\"files\":[[\(json),1]]}"))
    }

    @Test func keyNamesCannotEndTheirElement() {
        #expect(html([], vkey: "</script><script>+1+x").contains("\"vkey\":\"\\u003c/script>\\u003cscript>+1+x\""))
    }
}
