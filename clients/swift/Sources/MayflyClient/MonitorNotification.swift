/// A monitor's push about a printer that this phone watches.
public struct MonitorNotification: Hashable, Sendable {
    public let event: PrinterEvent
    public let status: PrinterStatus
    /// 25, 50 or 75 percent. Nil except for ``PrinterEvent/milestone``.
    public let progress: Int?
    /// The printer, as it was registered.
    public let printer: String

    /// Groups the notifications of one printer.
    public let threadIdentifier: String

    /// Reads a push. Returns nil if it is not a monitor's, or of an unknown printer. Then show it as it came.
    ///
    /// - Parameters:
    ///   - payload: `userInfo` of the notification.
    ///   - printers: what this phone watches: ``Registration/table(_:_:)`` of the kind ``Registration/Kind/printer``.
    public init?(payload: [AnyHashable: Any], printers: HandleTable) {
        guard let state = payload["printerState"] as? [AnyHashable: Any], let handle = state["prefix"] as? String,
            let printer = printers.name(handle), let event = state["type"] as? String, let status = state["status"] as? String
        else { return nil }
        self.event = PrinterEvent(rawValue: event)
        self.status = PrinterStatus(rawValue: status)
        self.printer = printer
        progress = state["progress"] as? Int
        threadIdentifier = handle
    }
}
