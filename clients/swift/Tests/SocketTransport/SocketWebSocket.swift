import Foundation
import MayflyClient

/// A WebSocket client (RFC 6455) that answers pings, as `URLSession` does.
final class SocketWebSocket: WebSocket, @unchecked Sendable {
    private let connection: Connection
    private let freezer: Freezer
    private let lock = NSLock()
    private var texts: [String] = []
    private var end: (any Error)?
    private var waiting: CheckedContinuation<String, any Error>?

    init(_ connection: Connection, rest: Data, freezer: Freezer) {
        self.connection = connection
        self.freezer = freezer
        Thread.detachNewThread { [self] in read(rest) }
    }

    func send(_ text: String) async throws { try write(opcode: 1, Data(text.utf8)) }

    func receive() async throws -> String {
        try await withCheckedThrowingContinuation { continuation in
            lock.withLock {
                if !texts.isEmpty {
                    continuation.resume(returning: texts.removeFirst())
                } else if let end {
                    continuation.resume(throwing: end)
                } else {
                    waiting = continuation
                }
            }
        }
    }

    func close(code: Int?) async {
        if let code { try? write(opcode: 8, Data([UInt8(code >> 8), UInt8(code & 255)])) }
        finish(MayflyError.noAnswer("closed"))
        connection.shutDown()
    }

    private func write(opcode: UInt8, _ payload: Data) throws {
        let mask = (0..<4).map { _ in UInt8.random(in: 0...255) }
        var frame = Data([0x80 | opcode])
        if payload.count < 126 {
            frame.append(0x80 | UInt8(payload.count))
        } else {
            frame += [0x80 | 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)]
        }
        frame += mask
        frame += payload.enumerated().map { $1 ^ mask[$0 % 4] }
        try lock.withLock { try connection.write(frame) }
    }

    private func finish(_ error: any Error) {
        lock.withLock {
            if end == nil { end = error }
            waiting?.resume(throwing: error)
            waiting = nil
        }
    }

    private func take(_ text: String) {
        lock.withLock {
            if let waiting {
                self.waiting = nil
                waiting.resume(returning: text)
            } else {
                texts.append(text)
            }
        }
        // A flood waits in the network until somebody reads.
        while lock.withLock({ texts.count > 1_000 && end == nil }) { Thread.sleep(forTimeInterval: 0.01) }
    }

    private func read(_ first: Data) {
        var data = [UInt8](first)
        func need(_ count: Int) throws {
            while data.count < count {
                let more = try connection.read()
                while freezer.isFrozen { Thread.sleep(forTimeInterval: 0.01) }
                guard !more.isEmpty else { throw MayflyError.noAnswer("the connection ended") }
                data += more
            }
        }
        do {
            while true {
                try need(2)
                let opcode = data[0] & 15
                var (length, start) = (Int(data[1] & 127), 2)
                if length == 126 {
                    try need(4)
                    (length, start) = (Int(data[2]) << 8 | Int(data[3]), 4)
                }
                // Longer than `TransportResponse.largestBody`.
                if length == 127 { throw MayflyError.unexpectedAnswer(status: 101) }
                try need(start + length)
                let payload = Data(data[start..<start + length])
                data.removeFirst(start + length)
                switch opcode {
                case 1:
                    guard let text = String(data: payload, encoding: .utf8) else { throw MayflyError.noAnswer("no UTF-8") }
                    take(text)
                case 2: throw MayflyError.unexpectedAnswer(status: 101)
                case 8: throw MayflyError.noAnswer("closed by the broker")
                case 9: try write(opcode: 10, payload)
                case 10: break
                default: throw MayflyError.noAnswer("an unknown frame")
                }
            }
        } catch {
            finish(error)
            connection.shutDown()
        }
    }
}
