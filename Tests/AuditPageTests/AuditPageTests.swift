import Linux
import Testing

@testable import AuditPage

@Suite struct AuditPageTests {
    private static let folder = "\(File.folder(of: File.folder(of: File.folder(of: #filePath))))/Sources/AuditPage"

    @Test func everyFileIsServedAsItLies() throws {
        let names = try File.list("\(Self.folder)/page").map { "page/\($0)" } + ["index.html"]
        #expect(Set(names) == Set(AuditPage.files.map(\.path)))
        for file in AuditPage.files { #expect(try File.read("\(Self.folder)/\(file.path)", limit: 1 << 20) == file.bytes) }
    }

    @Test func thePageIsFoundByItsPaths() {
        #expect(AuditPage.file(at: "")?.path == "index.html")
        #expect(AuditPage.file(at: "")?.contentType == "text/html; charset=utf-8")
        #expect(AuditPage.file(at: "page/start.js")?.contentType == "text/javascript; charset=utf-8")
        #expect(AuditPage.file(at: "page/style.css")?.contentType == "text/css; charset=utf-8")
        for path in ["page", "page/", "/index.html", "page/../index.html", "page/start.js/", "start.js"] {
            #expect(AuditPage.file(at: path) == nil)
        }
    }

    /// The report joins the modules in this order and drops their imports, which only works for such lines.
    @Test func modulesStandAfterWhatTheyImport() throws {
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
        // Nor may it end the element that it stands in.
        #expect(!AuditReport.program.contains("</") && !AuditReport.program.contains("<!--"))
    }

    @Test func namesAreGivenOnce() {
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

    @Test func nothingFromALogBecomesMarkup() {
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

    @Test func thePolicyIsTheSameInPageAndHeader() {
        let page = String(decoding: AuditPage.page.bytes, as: UTF8.self)
        #expect(page.contains("content=\"\(AuditPage.pagePolicy)\""))
        #expect(AuditPage.contentSecurityPolicy.hasPrefix(AuditPage.pagePolicy))
    }
}
