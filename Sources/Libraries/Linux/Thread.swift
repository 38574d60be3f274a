import CLinux
import Glibc
import Synchronization

/// A thread of the operating system.
public final class Thread: Sendable {
    private let id: pthread_t
    private let joined = Atomic<Bool>(false)

    private init(id: pthread_t) { self.id = id }

    /// Starts a thread that runs `body` once. The kernel keeps 15 bytes of the name.
    public static func spawn(name: String, _ body: @escaping @Sendable () -> Void) throws(Errno) -> Thread {
        let start = unsafe Unmanaged.passRetained(Start(name: name, body: body))
        var id = pthread_t()
        let result = unsafe pthread_create(
            &id, nil,
            { argument in
                let start = unsafe Unmanaged<Start>.fromOpaque(argument!).takeRetainedValue()
                unsafe mayfly_name_thread(start.name)
                start.body()
                return nil
            }, start.toOpaque())
        guard result == 0 else {
            unsafe start.release()
            throw Errno(code: result, call: "pthread_create")
        }
        return Thread(id: id)
    }

    /// Waits until the thread has ended. Further calls return at once.
    public func join() {
        guard !joined.exchange(true, ordering: .relaxed) else { return }
        _ = pthread_join(id, nil)
    }

    deinit {
        if !joined.load(ordering: .relaxed) { _ = pthread_detach(id) }
    }

    /// Yields the processor to other runnable threads.
    public static func yield() { _ = sched_yield() }

    /// A number of the calling thread, unique among living threads.
    public static var current: UInt { UInt(pthread_self()) }

    private final class Start: Sendable {
        let name: String
        let body: @Sendable () -> Void
        init(name: String, body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }
}
