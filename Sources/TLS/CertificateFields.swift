internal import COpenSSL

/// What is read of a certificate beside its key and its dates.
enum CertificateFields {
    /// The user ids of its subject (0.9.2342.19200300.100.1.1), in their order.
    static func userIDs(of certificate: OpaquePointer) -> [String] {
        let subject = unsafe X509_get_subject_name(certificate)
        var found: [String] = []
        var place: Int32 = -1
        while true {
            place = unsafe X509_NAME_get_index_by_NID(subject, NID_userId, place)
            guard place >= 0 else { return found }
            var text: UnsafeMutablePointer<UInt8>?
            let count = unsafe ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)))
            guard count >= 0, let text = unsafe text else { continue }
            unsafe found.append(String(decoding: UnsafeBufferPointer(start: text, count: Int(count)), as: UTF8.self))
            unsafe CRYPTO_free(text, #file, #line)
        }
    }

    /// The object identifiers of its extensions, with dots.
    static func extensions(of certificate: OpaquePointer) -> [String] {
        unsafe (0..<X509_get_ext_count(certificate)).map { place in
            let object = unsafe X509_EXTENSION_get_object(X509_get_ext(certificate, place))
            var text = [UInt8](repeating: 0, count: 100)
            let count = unsafe text.withUnsafeMutableBytes {
                unsafe OBJ_obj2txt($0.bindMemory(to: CChar.self).baseAddress, Int32($0.count), object, 1)
            }
            return String(decoding: text.prefix(max(0, Int(count))), as: UTF8.self)
        }
    }
}
