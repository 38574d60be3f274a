#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/provider.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// Swift can't import options written with the function-like macro SSL_OP_BIT.
static const uint64_t ssl_op_cleanse_plaintext = SSL_OP_CLEANSE_PLAINTEXT;
static const uint64_t ssl_op_no_compression = SSL_OP_NO_COMPRESSION;
static const uint64_t ssl_op_no_renegotiation = SSL_OP_NO_RENEGOTIATION;
static const uint64_t ssl_op_no_ticket = SSL_OP_NO_TICKET;
static const uint64_t ssl_op_cipher_server_preference = SSL_OP_CIPHER_SERVER_PREFERENCE;

// One hash in one call, on the stack. EVP allocates for each, which takes longer than hashing a leaf of the log.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline void mayfly_sha256(
    unsigned char prefix, const void *first, size_t first_count, const void *second, size_t second_count, unsigned char *digest) {
    SHA256_CTX hash;
    SHA256_Init(&hash);
    SHA256_Update(&hash, &prefix, 1);
    SHA256_Update(&hash, first, first_count);
    SHA256_Update(&hash, second, second_count);
    SHA256_Final(digest, &hash);
}
#pragma GCC diagnostic pop
