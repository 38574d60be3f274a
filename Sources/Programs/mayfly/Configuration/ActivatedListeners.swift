import Linux

/// The listening sockets that systemd opened for `serve`, by the names of their socket units. Each replaces the setting of its address.
struct ActivatedListeners {
    let apps: ActivatedSocket?
    let `operator`: ActivatedSocket?

    static let none = ActivatedListeners(apps: nil, operator: nil)

    /// Takes them from the environment. Without systemd there are none.
    static func take() throws -> ActivatedListeners {
        let sockets = try ActivatedSocket.takeAll()
        for socket in sockets where !["apps", "operator"].contains(socket.name) {
            throw UsageError(
                "systemd opened \(socket.address.shown) under a name that says neither apps nor operator. "
                    + "Set FileDescriptorName=apps or FileDescriptorName=operator in its socket unit")
        }
        return ActivatedListeners(apps: try one("apps", of: sockets), operator: try one("operator", of: sockets))
    }

    private static func one(_ name: String, of sockets: [ActivatedSocket]) throws -> ActivatedSocket? {
        let named = sockets.filter { $0.name == name }
        guard named.count < 2 else {
            throw UsageError(
                "systemd opened \(named.count) sockets for \(name), and Mayfly serves one. Leave one ListenStream= in the socket unit"
            )
        }
        guard named.first?.isListening != false else {
            throw UsageError(
                "systemd opened a connection for \(name), not a listening socket. Use ListenStream= and Accept=no in the socket unit"
            )
        }
        return named.first
    }
}

extension ActivatedSocket? {
    /// The address of the socket, or of the setting if there is no socket.
    /// - Throws: `UsageError` if both exist and differ.
    func address(_ setting: Setting, _ configuration: Configuration) throws -> SocketAddress {
        guard let self else { return try configuration.address(setting) }
        if configuration[setting] != nil, try configuration.address(setting) != self.address {
            throw configuration.invalid(
                setting,
                "isn't \(self.address.shown), where systemd listens for it. Remove the setting, or change ListenStream= in the socket unit"
            )
        }
        return self.address
    }
}
