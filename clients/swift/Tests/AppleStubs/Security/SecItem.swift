// swift-format-ignore-file: AlwaysUseLowerCamelCase

@_exported import Foundation

// Stands for Apple's Security on Linux: a keychain in memory. Casts such as `as CFDictionary` bridge on Apple's systems, and change nothing here.

public struct CFString: Hashable, Sendable, ExpressibleByStringLiteral {
    let text: String
    public init(stringLiteral text: String) { self.text = text }
}

public typealias CFDictionary = [CFString: Any]
public typealias CFTypeRef = AnyObject
public typealias OSStatus = Int32

public let kSecClass: CFString = "class"
public let kSecClassGenericPassword: CFString = "genp"
public let kSecAttrService: CFString = "svce"
public let kSecAttrAccount: CFString = "acct"
public let kSecAttrAccessGroup: CFString = "agrp"
public let kSecAttrAccessible: CFString = "pdmn"
public let kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly: CFString = "cku"
public let kSecUseDataProtectionKeychain: CFString = "nleg"
public let kSecValueData: CFString = "v_Data"
public let kSecReturnData: CFString = "r_Data"
public let kSecMatchLimit: CFString = "m_Limit"
public let kSecMatchLimitAll: CFString = "m_LimitAll"

public let errSecSuccess: OSStatus = 0
public let errSecItemNotFound: OSStatus = -25300
public let errSecDuplicateItem: OSStatus = -25299
public let errSecInteractionNotAllowed: OSStatus = -25308

public func SecItemAdd(_ attributes: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    StubKeychain.shared.run { items in
        if items.contains(where: { $0.isItem(attributes) }) { return errSecDuplicateItem }
        items.append(attributes)
        return errSecSuccess
    }
}

public func SecItemUpdate(_ query: CFDictionary, _ attributesToUpdate: CFDictionary) -> OSStatus {
    StubKeychain.shared.run { items in
        let found = items.indices.filter { items[$0].matches(query) }
        for index in found { items[index].merge(attributesToUpdate) { $1 } }
        return found.isEmpty ? errSecItemNotFound : errSecSuccess
    }
}

public func SecItemDelete(_ query: CFDictionary) -> OSStatus {
    StubKeychain.shared.run { items in
        let before = items.count
        items.removeAll { $0.matches(query) }
        return items.count == before ? errSecItemNotFound : errSecSuccess
    }
}

/// Returns the data of one item, or of all with `kSecMatchLimitAll`.
public func SecItemCopyMatching(_ query: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus {
    StubKeychain.shared.run { items in
        let found = items.filter { $0.matches(query) }.compactMap { $0[kSecValueData] as? Data }
        guard let first = found.first else { return errSecItemNotFound }
        result?.pointee = query[kSecMatchLimit] as? CFString == kSecMatchLimitAll ? found as AnyObject : first as AnyObject
        return errSecSuccess
    }
}

public final class StubKeychain: @unchecked Sendable {
    public static let shared = StubKeychain()
    private let lock = NSLock()
    private var items: [CFDictionary] = []
    private var locked = false

    /// Before the first unlock after a start of the phone.
    public var isLocked: Bool {
        get { lock.withLock { locked } }
        set { lock.withLock { locked = newValue } }
    }

    public var contents: [CFDictionary] { lock.withLock { items } }

    fileprivate func run(_ body: (inout [CFDictionary]) -> OSStatus) -> OSStatus {
        lock.withLock { locked ? errSecInteractionNotAllowed : body(&items) }
    }
}

extension [CFString: Any] {
    /// Whether a query finds this item. Settings of the query itself don't count.
    fileprivate func matches(_ query: CFDictionary) -> Bool {
        query.allSatisfy { key, value in
            [kSecReturnData, kSecMatchLimit, kSecUseDataProtectionKeychain].contains(key) || Self.equal(self[key], value)
        }
    }

    /// Whether the keychain takes both for one item.
    fileprivate func isItem(_ other: CFDictionary) -> Bool {
        [kSecClass, kSecAttrService, kSecAttrAccount, kSecAttrAccessGroup].allSatisfy { Self.equal(self[$0], other[$0]) }
    }

    private static func equal(_ first: Any?, _ second: Any?) -> Bool {
        switch (first, second) {
        case (let first as CFString, let second as CFString): first == second
        case (let first as String, let second as String): first == second
        case (let first as CFString, let second as String): first.text == second
        case (let first as String, let second as CFString): first == second.text
        default: first == nil && second == nil
        }
    }
}
