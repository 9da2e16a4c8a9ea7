/* See secure.h: SCRAM-SHA-512 (RFC 5802), in SaslHandshake 1 and SaslAuthenticate 1. The salted password is computed once. */
#include "secure.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { SASL_HANDSHAKE = 17, SASL_AUTHENTICATE = 36, LONGEST = 4096, NONCE_BYTES = 18 };
#define MECHANISM "SCRAM-SHA-512"

struct text {
    char data[LONGEST];
    size_t size;
};

static void send_request(struct exchange *exchange, const struct buffer *request) {
    if (exchange->tls)
        light_send(exchange->tls, request->data, request->size);
    else
        send_all(exchange->fd, request->data, request->size);
}

static void receive(struct exchange *exchange, uint8_t *to, size_t size) {
    while (size) {
        ssize_t got = exchange->tls ? (ssize_t)light_receive(exchange->tls, to, size) : recv(exchange->fd, to, size, 0);
        if (got <= 0)
            die("the broker closed the connection during a login");
        to += got;
        size -= (size_t)got;
    }
}

static struct cursor answer(struct exchange *exchange, const struct buffer *request, uint8_t *room) {
    uint8_t size_field[4];
    send_request(exchange, request);
    receive(exchange, size_field, 4);
    size_t size = load_u32(size_field);
    if (size > LONGEST)
        die("a response of %zu bytes during a login", size);
    receive(exchange, room, size);
    return (struct cursor){room + 4, room + size};
}

void ask_versions(struct exchange *exchange) {
    struct buffer request = {0};
    uint8_t room[LONGEST];
    put_api_versions(&request);
    struct cursor response = answer(exchange, &request, room);
    int16_t error = take_i16(&response);
    if (error)
        die("ApiVersions was answered with error %d", error);
    free(request.data);
}

/* The header of version 1: the client id, but no tags. */
static void begin(struct buffer *request, int key, int version) {
    put_i32(request, 0);
    put_i16(request, (int16_t)key);
    put_i16(request, (int16_t)version);
    put_i32(request, 1);
    put_i16(request, 5);
    put_bytes(request, "bench", 5);
}

static void finish(struct buffer *request) { store_u32(request->data, (uint32_t)request->size - 4); }

static void choose_mechanism(struct exchange *exchange) {
    struct buffer request = {0};
    uint8_t room[LONGEST];
    begin(&request, SASL_HANDSHAKE, 1);
    put_i16(&request, sizeof MECHANISM - 1);
    put_bytes(&request, MECHANISM, sizeof MECHANISM - 1);
    finish(&request);
    struct cursor response = answer(exchange, &request, room);
    int16_t error = take_i16(&response);
    if (error)
        die("SaslHandshake was answered with error %d", error);
    free(request.data);
}

static struct text authenticate(struct exchange *exchange, const struct text *token) {
    struct buffer request = {0};
    uint8_t room[LONGEST];
    struct text reply = {0};
    begin(&request, SASL_AUTHENTICATE, 1);
    put_i32(&request, (int32_t)token->size);
    put_bytes(&request, token->data, token->size);
    finish(&request);
    struct cursor response = answer(exchange, &request, room);
    int16_t error = take_i16(&response);
    if (error)
        die("SaslAuthenticate was answered with error %d", error);
    int16_t message = take_i16(&response);
    if (message > 0)
        take(&response, (size_t)message);
    int32_t size = take_i32(&response);
    if (size < 0 || size >= LONGEST)
        die("a SASL token of %d bytes", size);
    memcpy(reply.data, take(&response, (size_t)size), (size_t)size);
    reply.size = (size_t)size;
    free(request.data);
    return reply;
}

static void hmac(const uint8_t *key, size_t size, const void *data, size_t length, uint8_t *result) {
    unsigned int written;
    if (!HMAC(EVP_sha512(), key, (int)size, data, length, result, &written))
        die("HMAC failed");
}

/* The client key of the password, computed for the first login: every login has the same user. */
static const uint8_t *client_key(const char *password, const char *salt, int iterations) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint8_t key[SHA512_DIGEST_LENGTH];
    static bool known;
    pthread_mutex_lock(&lock);
    if (!known) {
        uint8_t raw[LONGEST], salted[SHA512_DIGEST_LENGTH];
        int size = EVP_DecodeBlock(raw, (const uint8_t *)salt, (int)strlen(salt));
        for (size_t i = strlen(salt); i && salt[i - 1] == '='; i--)
            size--;
        if (size < 0 || !PKCS5_PBKDF2_HMAC(password, (int)strlen(password), raw, size, iterations, EVP_sha512(), sizeof salted, salted))
            die("the salted password cannot be computed");
        hmac(salted, sizeof salted, "Client Key", 10, key);
        known = true;
    }
    pthread_mutex_unlock(&lock);
    return key;
}

void log_in(struct exchange *exchange, const char *user_and_password) {
    const char *colon = strchr(user_and_password, ':');
    if (!colon)
        die("--user wants USER:PASSWORD");
    uint8_t random[NONCE_BYTES];
    char nonce[64], salt[1024], server_nonce[1024];
    int iterations;
    RAND_bytes(random, sizeof random);
    EVP_EncodeBlock((uint8_t *)nonce, random, sizeof random);

    choose_mechanism(exchange);
    struct text first = {0};
    first.size = (size_t)snprintf(first.data, LONGEST, "n,,n=%.*s,r=%s", (int)(colon - user_and_password), user_and_password, nonce);
    struct text challenge = authenticate(exchange, &first);
    if (sscanf(challenge.data, "r=%1023[^,],s=%1023[^,],i=%d", server_nonce, salt, &iterations) != 3)
        die("a SCRAM challenge that cannot be read");

    struct text last = {0};
    last.size = (size_t)snprintf(last.data, LONGEST, "c=biws,r=%s", server_nonce);
    char message[3 * LONGEST];
    int length = snprintf(message, sizeof message, "%s,%s,%s", first.data + 3, challenge.data, last.data);
    const uint8_t *key = client_key(colon + 1, salt, iterations);
    uint8_t stored[SHA512_DIGEST_LENGTH], proof[SHA512_DIGEST_LENGTH], encoded[2 * SHA512_DIGEST_LENGTH];
    SHA512(key, SHA512_DIGEST_LENGTH, stored);
    hmac(stored, sizeof stored, message, (size_t)length, proof);
    for (size_t i = 0; i < sizeof proof; i++)
        proof[i] ^= key[i];
    EVP_EncodeBlock(encoded, proof, sizeof proof);
    last.size += (size_t)snprintf(last.data + last.size, LONGEST - last.size, ",p=%s", encoded);
    authenticate(exchange, &last);
}
