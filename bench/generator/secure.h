/* Connections with TLS, and logins with SCRAM-SHA-512, for loads that know neither: `connect_to` gives them a socket on which they read
 * and write plain bytes. Needs OpenSSL's libssl. */
#ifndef SECURE_H
#define SECURE_H

#include <openssl/ssl.h>

#include "session.h"

/* A TLS 1.3 connection on this connected, blocking socket. No certificate is checked. Dies if the handshake fails. */
SSL *tls_connect(int fd);
/* One end of a pair of sockets: a thread of this process encrypts what is written to it and sends it on `fd`, and the other way round.
 * When either end is closed, so is the other. */
int tls_tunnel(int fd);

/* A TLS 1.3 connection on this connected, blocking socket that costs this process little, with code of our own. No certificate is checked,
 * and all connections use one key pair. Dies if the handshake fails. */
struct light_tls *light_connect(int fd);
void light_send(struct light_tls *tls, const uint8_t *data, size_t size);
/* Waits for up to `size` bytes. Returns their number, which is not 0. Dies if the broker has ended the connection. */
size_t light_receive(struct light_tls *tls, uint8_t *to, size_t size);
/* Ends it without waiting for the other side, and closes the socket. */
void light_close(struct light_tls *tls);

/* What a login asks, and what it is answered: over a socket or over TLS. */
struct exchange {
    int fd;
    struct light_tls *tls; /* NULL: plain */
};

/* Logs in as `user:password` with SCRAM-SHA-512. Dies if it is refused. */
void log_in(struct exchange *exchange, const char *user_and_password);
/* Sends an ApiVersions request and reads its response. */
void ask_versions(struct exchange *exchange);

#endif
