/* The cryptography of a Web Push message (RFC 8291) in a bare loop. Compiled and run by webpush.py:
   webpush COUNT POINT AUTH encrypts so many messages to a subscription's keys, in hex, and prints the seconds of CPU and the last message. */
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEAD = 86, TEXT = 1024, TAG = 16, MESSAGE = HEAD + TEXT + 1 + TAG };

#define CHECK(done)                                       \
    do {                                                  \
        if (!(done)) {                                    \
            fprintf(stderr, "webpush.c: %s\n", #done);    \
            exit(1);                                      \
        }                                                 \
    } while (0)

static EVP_MAC_CTX *mac;
static EVP_CIPHER *cipher;
static EVP_CIPHER_CTX *sealing;
static EVP_PKEY_CTX *making;

static void hmac(const void *key, size_t key_count, const void *text, size_t count, unsigned char out[32]) {
    size_t written;
    CHECK(EVP_MAC_init(mac, key, key_count, NULL) && EVP_MAC_update(mac, text, count) && EVP_MAC_final(mac, out, &written, 32));
}

static void encrypt(const unsigned char *text, size_t count, const unsigned char *point, const unsigned char *auth, unsigned char *message) {
    EVP_PKEY *own = NULL, *peer = EVP_PKEY_new();
    CHECK(EVP_PKEY_generate(making, &own));
    CHECK(EVP_PKEY_copy_parameters(peer, own) && EVP_PKEY_set1_encoded_public_key(peer, point, 65));
    CHECK(RAND_bytes(message, 16));
    memcpy(message + 16, "\0\0\x10\0\x41", 5);
    size_t length;
    CHECK(EVP_PKEY_get_octet_string_param(own, "encoded-pub-key", message + 21, 65, &length) && length == 65);

    unsigned char secret[32], extract[32], material[32], pseudo[32], content[32], nonce[32];
    EVP_PKEY_CTX *deriving = EVP_PKEY_CTX_new(own, NULL);
    length = sizeof secret;
    CHECK(EVP_PKEY_derive_init(deriving) && EVP_PKEY_derive_set_peer_ex(deriving, peer, 0) && EVP_PKEY_derive(deriving, secret, &length));
    EVP_PKEY_CTX_free(deriving);
    EVP_PKEY_free(own);
    EVP_PKEY_free(peer);

    unsigned char info[14 + 65 + 65 + 1] = "WebPush: info";
    memcpy(info + 14, point, 65);
    memcpy(info + 79, message + 21, 65);
    info[144] = 1;
    hmac(auth, 16, secret, 32, extract);
    hmac(extract, 32, info, sizeof info, material);
    hmac(message, 16, material, 32, pseudo);
    hmac(pseudo, 32, "Content-Encoding: aes128gcm\0\1", 29, content);
    hmac(pseudo, 32, "Content-Encoding: nonce\0\1", 25, nonce);

    unsigned char *body = message + HEAD;
    memcpy(body, text, count);
    body[count] = 2;
    memset(body + count + 1, 0, TEXT - count);
    int written, rest;
    CHECK(EVP_EncryptInit_ex(sealing, cipher, NULL, content, nonce) && EVP_EncryptUpdate(sealing, body, &written, body, TEXT + 1));
    CHECK(EVP_EncryptFinal_ex(sealing, body + written, &rest) && EVP_CIPHER_CTX_ctrl(sealing, EVP_CTRL_AEAD_GET_TAG, TAG, body + TEXT + 1));
}

static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    size_t length;
    unsigned char point[65], auth[16], message[MESSAGE];
    CHECK(OPENSSL_hexstr2buf_ex(point, sizeof point, &length, argv[2], 0) && length == 65);
    CHECK(OPENSSL_hexstr2buf_ex(auth, sizeof auth, &length, argv[3], 0) && length == 16);
    const char *text = "{\"mutable\":true,\"web_push\":8030,\"notification\":{\"title\":\"Your chat partner is waiting\",\"tag\":\"q1w2e3r4t5y6u7i8o9p0aa\","
                       "\"navigate\":\"https://app.example/\",\"data\":{\"roomId\":\"q1w2e3r4t5y6u7i8o9p0aa\",\"template\":\"peer_waiting\"}}}";

    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    OSSL_PARAM digest[] = {OSSL_PARAM_construct_utf8_string("digest", "SHA256", 0), OSSL_PARAM_END};
    CHECK((mac = EVP_MAC_CTX_new(algorithm)) && EVP_MAC_CTX_set_params(mac, digest));
    CHECK((cipher = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL)) && (sealing = EVP_CIPHER_CTX_new()));
    CHECK((making = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL)) && EVP_PKEY_keygen_init(making));
    CHECK(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(making, NID_X9_62_prime256v1) > 0);

    double start = cpu();
    for (long left = atol(argv[1]); left > 0; left--) encrypt((const unsigned char *)text, strlen(text), point, auth, message);
    printf("%.9f ", cpu() - start);
    for (int at = 0; at < MESSAGE; at++) printf("%02x", message[at]);
    putchar('\n');
}
