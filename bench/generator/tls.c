/* See secure.h. One thread pumps all tunnels, with epoll; it holds at most one block of bytes for each direction of a tunnel. */
#include "secure.h"

#include <errno.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK = 65536, TICK = 64 };

struct end {
    struct tunnel *tunnel;
    int fd;
    uint32_t interest;
};

struct tunnel {
    SSL *tls;
    struct end network, local;
    uint8_t *out, *in; /* plain bytes that were read from `local` and not sent, and received ones not passed on */
    size_t out_at, out_size, in_at, in_size;
    bool write_blocked;
};

static int epoll_of_pump = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static SSL_CTX *context(void) {
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        if (!context)
            die("no TLS context");
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
        SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384");
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    return context;
}

static _Noreturn void die_of_tls(const char *what) { die("%s: %s", what, ERR_error_string(ERR_get_error(), NULL)); }

SSL *tls_connect(int fd) {
    SSL *tls = SSL_new(context());
    if (!tls || SSL_set_fd(tls, fd) != 1)
        die_of_tls("TLS");
    if (SSL_connect(tls) != 1)
        die_of_tls("the TLS handshake failed");
    return tls;
}

static void watch(struct end *end, uint32_t interest) {
    struct epoll_event event = {.events = interest, .data.ptr = end};
    if (interest == end->interest)
        return;
    if (epoll_ctl(epoll_of_pump, EPOLL_CTL_MOD, end->fd, &event))
        die("epoll_ctl: %s", strerror(errno));
    end->interest = interest;
}

static void end_tunnel(struct tunnel *tunnel) {
    SSL_free(tunnel->tls);
    close(tunnel->network.fd);
    close(tunnel->local.fd);
    tunnel->tls = NULL; /* an event of this turn may still name it; the memory is kept, and little */
    free(tunnel->out);
    free(tunnel->in);
}

/* From the local end to the network. False if the tunnel ended. */
static bool send_out(struct tunnel *tunnel) {
    for (;;) {
        if (!tunnel->out_size) {
            ssize_t got = recv(tunnel->local.fd, tunnel->out, BLOCK, MSG_DONTWAIT);
            if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return true;
            if (got <= 0) {
                SSL_shutdown(tunnel->tls);
                return false;
            }
            tunnel->out_at = 0;
            tunnel->out_size = (size_t)got;
        }
        while (tunnel->out_size) {
            int sent = SSL_write(tunnel->tls, tunnel->out + tunnel->out_at, (int)tunnel->out_size);
            if (sent <= 0) {
                tunnel->write_blocked = SSL_get_error(tunnel->tls, sent) == SSL_ERROR_WANT_WRITE;
                return tunnel->write_blocked;
            }
            tunnel->out_at += (size_t)sent;
            tunnel->out_size -= (size_t)sent;
        }
        tunnel->write_blocked = false;
    }
}

/* From the network to the local end. False if the tunnel ended. */
static bool pass_in(struct tunnel *tunnel) {
    for (;;) {
        while (tunnel->in_size) {
            ssize_t passed = send(tunnel->local.fd, tunnel->in + tunnel->in_at, tunnel->in_size, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (passed < 0)
                return errno == EAGAIN || errno == EINTR;
            tunnel->in_at += (size_t)passed;
            tunnel->in_size -= (size_t)passed;
        }
        int got = SSL_read(tunnel->tls, tunnel->in, BLOCK);
        if (got <= 0)
            return SSL_get_error(tunnel->tls, got) == SSL_ERROR_WANT_READ;
        tunnel->in_at = 0;
        tunnel->in_size = (size_t)got;
    }
}

static void pump(struct tunnel *tunnel) {
    if (!tunnel->tls)
        return;
    if (!send_out(tunnel) || !pass_in(tunnel)) {
        end_tunnel(tunnel);
        return;
    }
    watch(&tunnel->network, (tunnel->in_size ? 0 : EPOLLIN) | (tunnel->write_blocked ? EPOLLOUT : 0));
    watch(&tunnel->local, (tunnel->out_size ? 0 : EPOLLIN) | (tunnel->in_size ? EPOLLOUT : 0));
}

static void *run_pump(void *unused) {
    (void)unused;
    struct epoll_event events[TICK];
    for (;;) {
        int count = epoll_wait(epoll_of_pump, events, TICK, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++)
            pump(((struct end *)events[i].data.ptr)->tunnel);
    }
    return NULL;
}

static void start_pump(void) {
    pthread_t thread;
    epoll_of_pump = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_of_pump < 0 || pthread_create(&thread, NULL, run_pump, NULL))
        die("cannot start the thread of the TLS tunnels");
}

int tls_tunnel(int fd) {
    int pair[2];
    struct tunnel *tunnel = calloc(1, sizeof *tunnel);
    pthread_once(&once, start_pump);
    if (!tunnel || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        die("no memory or descriptors for a TLS tunnel");
    tunnel->tls = tls_connect(fd);
    tunnel->out = malloc(BLOCK);
    tunnel->in = malloc(BLOCK);
    if (!tunnel->out || !tunnel->in)
        die("out of memory");
    set_nonblocking(fd);
    tunnel->network = (struct end){tunnel, fd, EPOLLIN};
    tunnel->local = (struct end){tunnel, pair[1], EPOLLIN};
    struct end *ends[] = {&tunnel->network, &tunnel->local};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = ends[i]};
        if (epoll_ctl(epoll_of_pump, EPOLL_CTL_ADD, ends[i]->fd, &event))
            die("epoll_ctl: %s", strerror(errno));
    }
    return pair[0];
}
