import Policy
import Sealing
import Storage

extension Monitor {
    /// Takes a printer's event. When this returns, every push that follows from it is durable, and so is the milestone that was reported.
    ///
    /// - Parameters:
    ///   - printer: its prefix, 1 to 128 bytes.
    ///   - eventID: the caller's name for the event, at most 128 bytes. The same name again does nothing.
    /// - Returns: the news, even if no device asked for it, and the result.
    /// - Throws: `.backEndOnly`, `.tooManyRequests` for one printer, `.tooManyPushes`. Then nothing of the event was kept.
    public func take(
        _ event: PrinterEvent, of printer: [UInt8], eventID: [UInt8]?, from principal: Principal
    ) async throws(BrokerError) -> (news: PrinterNews?, receipt: EventReceipt) {
        guard principal.isBackEnd else { throw .backEndOnly }
        try await audiences.takeEvent(of: Self.counted(printer))
        // A failed try means that something else happened to the printer or to one of the devices meanwhile.
        for attempt in 0..<8 {
            let (news, run) = try await outcome(of: event, printer)
            var fanout = Fanout()
            if let news { fanout = try await pushes(news, printer) }
            fanout.change.session = run
            // The second try includes devices that were sealed again. From then on those that are gone are left out, so that they hold up nobody.
            fanout.change.leavesOutGone = attempt > 0
            if let eventID { fanout.change.seen = try await audiences.seen(printer, eventID, principal.eventSpace) }
            let outcome = fanout.change.isEmpty ? .done : try await audiences.apply(fanout)
            switch outcome {
            case .done: return (news, EventReceipt(pushes: fanout.pushes, throttled: fanout.throttled))
            case .repeated: return (nil, EventReceipt(isRepeated: true))
            case .changed, .settled, .leftOut: continue
            }
        }
        throw .storageUnavailable
    }

    /// The name under which a printer's events are counted. It can't be a user's name: it is not UTF-8.
    private static func counted(_ printer: [UInt8]) -> [UInt8] { [0xff] + printer }

    /// The news of an event, and the change of the printer's run. The run's row has the highest milestone that was reported.
    private func outcome(
        of event: PrinterEvent, _ printer: [UInt8]
    ) async throws(BrokerError) -> (news: PrinterNews?, run: SessionChange?) {
        switch event {
        case .status(let old, let new):
            let news = new.news(after: old)
            // A run that goes on has reported its milestones.
            guard news == .started, !old.isPaused else { return (news, nil) }
            return (news, try await run(printer, reached: 0, after: try await audiences.session(printer)))
        case .progress(let percent):
            let standing = try await audiences.session(printer)
            let told = Int(standing?.reached ?? 0)
            let crossed = PrinterNews.milestones.last { $0 <= percent } ?? 0
            if crossed > told { return (.milestone(crossed), try await run(printer, reached: crossed, after: standing)) }
            // A run is kept as long as it sends events.
            guard let standing, await audiences.place(.session).expiryMs > standing.expires else { return (nil, nil) }
            return (nil, try await run(printer, reached: told, after: standing))
        }
    }

    private func run(
        _ printer: [UInt8], reached: Int, after standing: SessionRecord?
    ) async throws(BrokerError) -> SessionChange {
        var next = try await audiences.newSession(printer)
        next.reached = UInt8(reached)
        if let standing {
            next.version = standing.version + 1
            if reached > 0 { next.started = standing.started }
        }
        return .set(next, after: standing?.version, replacing: standing?.session)
    }

    private func pushes(_ news: PrinterNews, _ printer: [UInt8]) async throws(BrokerError) -> Fanout {
        let named = AudienceEvent.Value.handle(kind: "printer", id: printer)
        // Milestones replace each other on a phone. The end of a print stays.
        var event = AudienceEvent(template: news.template, collapse: named, fields: ["printer": named])
        if case .milestone(let percent) = news {
            event.collapse = .handle(kind: "progress", id: printer)
            event.fields["progress"] = .plain(.number(percent))
        }
        let devices = try await audiences.devices(of: printer).filter {
            DevicePreferences(rawValue: $0.preferences).isSuperset(of: news.preferences)
        }
        return try await audiences.pushes(event, to: devices, of: printer)
    }
}
