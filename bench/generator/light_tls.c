/* See secure.h. A TLS 1.3 client (RFC 8446) with one suite, one group and one key share for all connections of the process.
 *
 * libssl needs about 450 us of CPU for the client's side of a handshake, most of it for the certificate, which nobody checks here. That
 * is more than the broker's side, so the generator would limit the rate of the broker. The broker's work is the same as with libssl: the
 * messages are those of a client of OpenSSL, and the broker's Finished is checked, so a wrong key schedule is found. */
#define OPENSSL_SUPPRESS_DEPRECATED /* SHA384_*: the functions that replace them look up the algorithm each time */
#include "secure.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HASH = SHA384_DIGEST_LENGTH,
    BLOCK = SHA512_CBLOCK,
    KEY = 32,
    IV = 12,
    TAG = 16,
    HEAD = 5,
    SHARE = 32,
    RECORD = 16384 + 256,
    ROOM = 2 * RECORD,
    SUITE = 0x1302, /* TLS_AES_256_GCM_SHA384 */
    X25519 = 0x001d,
    KEY_SHARE = 51,
};
enum { CHANGE_CIPHER_SPEC = 20, ALERT = 21, HANDSHAKE = 22, APPLICATION_DATA = 23 }; /* content types */
enum { SERVER_HELLO = 2, CERTIFICATE_REQUEST = 13, FINISHED = 20, KEY_UPDATE = 24 };  /* handshake messages */

struct direction { /* protection of the records of one direction */
    EVP_CIPHER_CTX *cipher;
    uint8_t iv[IV];
    uint64_t number;
};

struct light_tls {
    int fd;
    SHA512_CTX transcript;
    struct direction in, out;
    bool encrypted;
    size_t begin, end;                          /* of the received bytes in `received` that are no plaintext yet */
    const uint8_t *plain;                       /* application data in `record` that was not read yet */
    size_t plain_size;
    size_t messages_size;                       /* of the handshake messages that are not whole yet */
    uint8_t received[ROOM], record[RECORD], messages[ROOM];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static EVP_CIPHER *aes;
static EVP_PKEY *own_key;
static uint8_t own_share[SHARE], before_handshake[HASH], empty_hash[HASH];

static void hmac(const uint8_t *key, size_t key_size, const uint8_t *data, size_t size, uint8_t *out) {
    uint8_t pad[BLOCK], inner[HASH];
    SHA512_CTX hash;
    memset(pad, 0x36, sizeof pad);
    for (size_t i = 0; i < key_size; i++)
        pad[i] ^= key[i];
    SHA384_Init(&hash);
    SHA384_Update(&hash, pad, sizeof pad);
    SHA384_Update(&hash, data, size);
    SHA384_Final(inner, &hash);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    SHA384_Init(&hash);
    SHA384_Update(&hash, pad, sizeof pad);
    SHA384_Update(&hash, inner, sizeof inner);
    SHA384_Final(out, &hash);
}

/* HKDF-Expand-Label for at most one block of output (section 7.1). */
static void expand(const uint8_t *secret, const char *label, const uint8_t *context, size_t context_size, uint8_t *out, size_t size) {
    uint8_t info[4 + 255 + HASH + 1], whole[HASH];
    size_t length = strlen(label), at = 0;
    info[at++] = 0;
    info[at++] = (uint8_t)size;
    info[at++] = (uint8_t)(6 + length);
    memcpy(info + at, "tls13 ", 6);
    memcpy(info + at + 6, label, length);
    at += 6 + length;
    info[at++] = (uint8_t)context_size;
    if (context_size)
        memcpy(info + at, context, context_size);
    at += context_size;
    info[at++] = 1;
    hmac(secret, HASH, info, at, whole);
    memcpy(out, whole, size);
}

static void begin_once(void) {
    uint8_t zeros[HASH] = {0}, early[HASH];
    size_t size = sizeof own_share;
    aes = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    own_key = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    if (!aes || !own_key || EVP_PKEY_get_raw_public_key(own_key, own_share, &size) != 1)
        die("libcrypto has no AES-256-GCM or no X25519");
    SHA384((const uint8_t *)"", 0, empty_hash);
    hmac(zeros, HASH, zeros, HASH, early);
    expand(early, "derived", empty_hash, HASH, before_handshake, HASH);
}

static void set_key(struct direction *direction, const uint8_t *secret, bool encrypts) {
    uint8_t key[KEY];
    expand(secret, "key", NULL, 0, key, KEY);
    expand(secret, "iv", NULL, 0, direction->iv, IV);
    direction->number = 0;
    if (!direction->cipher && !(direction->cipher = EVP_CIPHER_CTX_new()))
        die("out of memory");
    if (EVP_CipherInit_ex2(direction->cipher, aes, key, NULL, encrypts, NULL) != 1)
        die("AES");
}

static void next_nonce(struct direction *direction) {
    uint8_t nonce[IV];
    memcpy(nonce, direction->iv, IV);
    for (int i = 0; i < 8; i++)
        nonce[IV - 1 - i] ^= (uint8_t)(direction->number >> 8 * i);
    direction->number++;
    if (EVP_CipherInit_ex2(direction->cipher, NULL, NULL, nonce, -1, NULL) != 1)
        die("AES");
}

/* Appends a protected record. Returns its size. */
static size_t seal(struct light_tls *tls, uint8_t type, const uint8_t *data, size_t size, uint8_t *to) {
    size_t length = size + 1 + TAG;
    int n;
    uint8_t head[HEAD] = {APPLICATION_DATA, 3, 3, (uint8_t)(length >> 8), (uint8_t)length};
    if (length > RECORD)
        die("a request of %zu bytes during a login", size);
    memcpy(to, head, HEAD);
    next_nonce(&tls->out);
    EVP_CIPHER_CTX *cipher = tls->out.cipher;
    if (EVP_EncryptUpdate(cipher, NULL, &n, head, HEAD) != 1 || EVP_EncryptUpdate(cipher, to + HEAD, &n, data, (int)size) != 1 ||
        EVP_EncryptUpdate(cipher, to + HEAD + size, &n, &type, 1) != 1 || EVP_EncryptFinal_ex(cipher, to + HEAD + size + 1, &n) != 1 ||
        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG, to + HEAD + size + 1) != 1)
        die("AES");
    return HEAD + length;
}

static void fill(struct light_tls *tls, size_t wanted) {
    if (tls->begin && tls->begin + wanted > ROOM) {
        memmove(tls->received, tls->received + tls->begin, tls->end - tls->begin);
        tls->end -= tls->begin;
        tls->begin = 0;
    }
    while (tls->end - tls->begin < wanted) {
        ssize_t got = recv(tls->fd, tls->received + tls->end, ROOM - tls->end, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            die("the broker closed the connection during a login");
        tls->end += (size_t)got;
    }
}

/* Receives a record. Returns its type; *data is its content. */
static int receive_record(struct light_tls *tls, const uint8_t **data, size_t *size) {
    fill(tls, HEAD);
    const uint8_t *head = tls->received + tls->begin;
    size_t length = (size_t)head[3] << 8 | head[4];
    if (length > RECORD)
        die("TLS: a record of %zu bytes", length);
    fill(tls, HEAD + length);
    head = tls->received + tls->begin;
    const uint8_t *body = head + HEAD;
    tls->begin += HEAD + length;
    *data = body;
    *size = length;
    if (!tls->encrypted || head[0] == CHANGE_CIPHER_SPEC)
        return head[0];
    if (head[0] != APPLICATION_DATA || length <= TAG)
        die("TLS: a record of type %d that is not encrypted", head[0]);
    int n;
    next_nonce(&tls->in);
    EVP_CIPHER_CTX *cipher = tls->in.cipher;
    *size = length - TAG;
    if (EVP_DecryptUpdate(cipher, NULL, &n, head, HEAD) != 1 ||
        EVP_DecryptUpdate(cipher, tls->record, &n, body, (int)*size) != 1 ||
        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG, (void *)(body + *size)) != 1 ||
        EVP_DecryptFinal_ex(cipher, tls->record + *size, &n) != 1)
        die("TLS: a record cannot be decrypted");
    while (*size && !tls->record[*size - 1])
        --*size;
    if (!*size)
        die("TLS: a record without a type");
    *data = tls->record;
    return tls->record[--*size];
}

/* Receives the next message of the handshake to the front of `messages`. Returns its size with its header of 4 bytes. */
static size_t receive_message(struct light_tls *tls) {
    for (;;) {
        const uint8_t *at = tls->messages, *data;
        size_t size;
        if (tls->messages_size >= 4) {
            size = 4 + ((size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3]);
            if (size > ROOM)
                die("TLS: a message of %zu bytes", size);
            if (tls->messages_size >= size)
                return size;
        }
        int type = receive_record(tls, &data, &size);
        if (type == CHANGE_CIPHER_SPEC)
            continue;
        if (type == ALERT && size == 2)
            die("the TLS handshake failed: alert %d", data[1]);
        if (type != HANDSHAKE || size > ROOM - tls->messages_size)
            die("TLS: a record of type %d during the handshake", type);
        memcpy(tls->messages + tls->messages_size, data, size);
        tls->messages_size += size;
    }
}

static void drop_message(struct light_tls *tls, size_t size) {
    tls->messages_size -= size;
    memmove(tls->messages, tls->messages + size, tls->messages_size);
}

static void hash_so_far(const struct light_tls *tls, uint8_t *out) {
    SHA512_CTX copy = tls->transcript;
    SHA384_Final(out, &copy);
}

static void send_hello(struct light_tls *tls) {
    enum { EXTENSIONS = 7 + 10 + 16 + 6 + 10 + SHARE };
    static const uint8_t before_share[] = {
        0, 2, SUITE >> 8, SUITE & 255, 1, 0,                                   /* suites; no compression */
        0, EXTENSIONS,                                                         /* size of the extensions below, with the share */
        0, 43, 0, 3, 2, 3, 4,                                                  /* supported_versions: 1.3 */
        0, 10, 0, 6, 0, 4, 0, 0x1d, 0, 0x17,                                   /* supported_groups: X25519, P-256 */
        0, 13, 0, 12, 0, 10, 4, 3, 8, 4, 8, 5, 8, 6, 4, 1,                     /* signature_algorithms: ECDSA, RSA-PSS, RSA */
        0, 45, 0, 2, 1, 1,                                                     /* psk_key_exchange_modes: tickets are welcome */
        0, KEY_SHARE, 0, 2 + 4 + SHARE, 0, 4 + SHARE, 0, X25519, 0, SHARE,     /* key_share */
    };
    enum { RANDOM = 32, BODY = 2 + RANDOM + 1 + RANDOM + sizeof before_share + SHARE };
    uint8_t hello[HEAD + 4 + BODY] = {HANDSHAKE, 3, 1, (4 + BODY) >> 8, (4 + BODY) & 255, 1, 0, BODY >> 8, BODY & 255, 3, 3};
    uint8_t *at = hello + HEAD + 4 + 2;
    RAND_bytes(at, RANDOM);
    at += RANDOM;
    *at++ = RANDOM; /* a session id, as clients send it for middleboxes */
    RAND_bytes(at, RANDOM);
    at += RANDOM;
    memcpy(at, before_share, sizeof before_share);
    memcpy(at + sizeof before_share, own_share, SHARE);
    SHA384_Update(&tls->transcript, hello + HEAD, sizeof hello - HEAD);
    send_all(tls->fd, hello, sizeof hello);
}

/* The public key in a ServerHello. */
static const uint8_t *share_in(const uint8_t *message, size_t size) {
    const uint8_t *end = message + size, *at = message + 4 + 2 + 32;
    if (size < 4 + 2 + 32 + 1 || message[0] != SERVER_HELLO || end - at < 1 + at[0] + 2 + 1 + 2)
        die("TLS: no ServerHello");
    at += 1 + at[0];
    if ((at[0] << 8 | at[1]) != SUITE)
        die("TLS: the broker chose another cipher suite");
    for (at += 2 + 1 + 2; end - at >= 4; at += 4 + (at[2] << 8 | at[3])) {
        if ((at[0] << 8 | at[1]) == KEY_SHARE && end - at >= 4 + 4 + SHARE && (at[4] << 8 | at[5]) == X25519)
            return at + 4 + 4;
    }
    die("TLS: the broker did not choose TLS 1.3 with X25519");
}

static void agree(const uint8_t *share, uint8_t *secret) {
    size_t size = SHARE;
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, share, SHARE);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(own_key, NULL);
    if (!peer || !context || EVP_PKEY_derive_init(context) != 1 || EVP_PKEY_derive_set_peer(context, peer) != 1 ||
        EVP_PKEY_derive(context, secret, &size) != 1)
        die("TLS: X25519 failed");
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
}

static void finished(const uint8_t *secret, const uint8_t *hash, uint8_t *out) {
    uint8_t key[HASH];
    expand(secret, "finished", NULL, 0, key, HASH);
    hmac(key, HASH, hash, HASH, out);
}

/* Receives the broker's messages up to its Finished, whose content it checks. */
static void receive_flight(struct light_tls *tls, const uint8_t *server_secret) {
    uint8_t hash[HASH], wanted[HASH];
    for (int type = 0; type != FINISHED;) {
        size_t size = receive_message(tls);
        type = tls->messages[0];
        if (type == CERTIFICATE_REQUEST)
            die("TLS: the broker asks for a certificate, and the generator has none");
        if (type == FINISHED) {
            hash_so_far(tls, hash);
            finished(server_secret, hash, wanted);
            if (size != 4 + HASH || CRYPTO_memcmp(tls->messages + 4, wanted, HASH))
                die("TLS: the broker's Finished is wrong");
        }
        SHA384_Update(&tls->transcript, tls->messages, size);
        drop_message(tls, size);
    }
}

struct light_tls *light_connect(int fd) {
    static const uint8_t change[] = {CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1};
    uint8_t shared[SHARE], handshake[HASH], master[HASH], hash[HASH], client[HASH], server[HASH], zeros[HASH] = {0};
    uint8_t last[sizeof change + HEAD + 4 + HASH + 1 + TAG], message[4 + HASH] = {FINISHED, 0, 0, HASH};
    struct light_tls *tls = malloc(sizeof *tls);
    pthread_once(&once, begin_once);
    if (!tls)
        die("out of memory");
    memset(tls, 0, offsetof(struct light_tls, received));
    tls->fd = fd;
    SHA384_Init(&tls->transcript);
    send_hello(tls);

    size_t size = receive_message(tls);
    agree(share_in(tls->messages, size), shared);
    SHA384_Update(&tls->transcript, tls->messages, size);
    drop_message(tls, size);
    hmac(before_handshake, HASH, shared, SHARE, handshake);
    hash_so_far(tls, hash);
    expand(handshake, "c hs traffic", hash, HASH, client, HASH);
    expand(handshake, "s hs traffic", hash, HASH, server, HASH);
    set_key(&tls->in, server, false);
    set_key(&tls->out, client, true);
    tls->encrypted = true;
    receive_flight(tls, server);

    hash_so_far(tls, hash);
    finished(client, hash, message + 4);
    memcpy(last, change, sizeof change);
    send_all(fd, last, sizeof change + seal(tls, HANDSHAKE, message, sizeof message, last + sizeof change));
    expand(handshake, "derived", empty_hash, HASH, master, HASH);
    hmac(master, HASH, zeros, HASH, handshake);
    expand(handshake, "c ap traffic", hash, HASH, client, HASH);
    expand(handshake, "s ap traffic", hash, HASH, server, HASH);
    set_key(&tls->in, server, false);
    set_key(&tls->out, client, true);
    return tls;
}

void light_send(struct light_tls *tls, const uint8_t *data, size_t size) {
    uint8_t record[HEAD + RECORD];
    send_all(tls->fd, record, seal(tls, APPLICATION_DATA, data, size, record));
}

size_t light_receive(struct light_tls *tls, uint8_t *to, size_t size) {
    while (!tls->plain_size) {
        const uint8_t *data;
        size_t n;
        int type = receive_record(tls, &data, &n);
        if (type == ALERT || (type == HANDSHAKE && n && data[0] == KEY_UPDATE))
            die("TLS: an alert or a new key during a login");
        if (type == APPLICATION_DATA) {
            tls->plain = data;
            tls->plain_size = n;
        }
    }
    size_t n = size < tls->plain_size ? size : tls->plain_size;
    memcpy(to, tls->plain, n);
    tls->plain += n;
    tls->plain_size -= n;
    return n;
}

void light_close(struct light_tls *tls) {
    uint8_t record[HEAD + 2 + 1 + TAG];
    send_all(tls->fd, record, seal(tls, ALERT, (const uint8_t[]){1, 0}, 2, record)); /* close_notify */
    close(tls->fd);
    EVP_CIPHER_CTX_free(tls->in.cipher);
    EVP_CIPHER_CTX_free(tls->out.cipher);
    free(tls);
}
