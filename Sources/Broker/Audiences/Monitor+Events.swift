import Policy
import Sealing
import Storage

extension Monitor {
    /// Takes what happened to a printer. When this returns, every push that follows from it is durable, and so is the milestone that was told.
    ///
    /// - Parameters:
    ///   - printer: its prefix, 1 to 128 bytes.
    ///   - eventID: the caller's name for the event, at most 128 bytes: the same one again does nothing.
    /// - Returns: what it was, also if nobody was to hear of it, and what came of it.
    /// - Throws: `.backEndOnly`, `.tooManyRequests` for one printer, `.tooManyPushes`; nothing of the event was kept.
    public func take(
        _ event: PrinterEvent, of printer: [UInt8], eventID: [UInt8]?, from principal: Principal
    ) async throws(BrokerError) -> (news: PrinterNews?, receipt: EventReceipt) {
        guard principal.isBackEnd else { throw .backEndOnly }
        try await audiences.takeEvent(of: Self.counted(printer))
        // Each loss means that something else happened to the printer meanwhile, or to one of the devices.
        for attempt in 0..<8 {
            let (news, run) = try await outcome(of: event, printer)
            var fanout = Fanout()
            if let news { fanout = try await pushes(news, printer) }
            fanout.change.session = run
            // A device that was sealed anew is told with the second look; who keeps coming and going holds up nobody else.
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

    /// A printer as events are counted. No user's name begins like this: it is no UTF-8.
    private static func counted(_ printer: [UInt8]) -> [UInt8] { [0xff] + printer }

    /// What is told of an event, and what becomes of the printer's run, whose row is the highest milestone that was told.
    private func outcome(
        of event: PrinterEvent, _ printer: [UInt8]
    ) async throws(BrokerError) -> (news: PrinterNews?, run: SessionChange?) {
        switch event {
        case .status(let old, let new):
            let news = new.news(after: old)
            // One that goes on has told its milestones.
            guard news == .started, !old.isPaused else { return (news, nil) }
            return (news, try await run(printer, reached: 0, after: try await audiences.session(printer)))
        case .progress(let percent):
            let standing = try await audiences.session(printer)
            let told = Int(standing?.reached ?? 0)
            let crossed = PrinterNews.milestones.last { $0 <= percent } ?? 0
            if crossed > told { return (.milestone(crossed), try await run(printer, reached: crossed, after: standing)) }
            // As long as something is heard of a run, it is known.
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
        // Percent take each other's place on a phone; how a print ended stays.
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
