@_exported import Foundation

// Stands for Apple's AVFAudio on Linux.

open class AVAudioSession: NSObject, @unchecked Sendable {
    open class func sharedInstance() -> AVAudioSession { stubShared }
    private static let stubShared = AVAudioSession()
}
