#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/provider.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// Swift can't import options written with the function-like macro SSL_OP_BIT.
static const uint64_t ssl_op_cleanse_plaintext = SSL_OP_CLEANSE_PLAINTEXT;
static const uint64_t ssl_op_no_compression = SSL_OP_NO_COMPRESSION;
static const uint64_t ssl_op_no_renegotiation = SSL_OP_NO_RENEGOTIATION;
static const uint64_t ssl_op_no_ticket = SSL_OP_NO_TICKET;
static const uint64_t ssl_op_cipher_server_preference = SSL_OP_CIPHER_SERVER_PREFERENCE;
