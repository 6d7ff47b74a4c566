/* The load generator's loop: N connections, each with `depth` calls in flight, answers of one known size.
 *
 * Python connects, shakes hands and says what goes out and what must come back; this file only sends, receives,
 * compares and times. load_c.py compiles it as a shared library. It knows no protocol: an answer is `answer_size` bytes
 * that must match a template wherever `mask` is not zero, and answers must come in the order of their calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_SIZE = 1 << 18, EVENTS = 256, PATIENCE_MS = 5000, BUCKETS = 4096, SUB = 64 };

struct wire { /* mirrored by load_c.py */
    const uint8_t *request, *answer, *mask;
    uint64_t request_size, answer_size;
    int64_t request_id_at, answer_id_at; /* offset of a big-endian 64-bit id, or -1 */
};

struct tally { /* mirrored by load_c.py */
    uint64_t calls, wrong, nanoseconds, p50, p99;
};

struct line {
    int fd;
    uint64_t next_id, want_id;
    uint64_t in_flight, owed;   /* owed: calls to make once what is in `out` has left */
    uint64_t out_at, out_end;   /* the unsent part of `out` */
    uint64_t part_size;         /* bytes of an answer cut by the end of a read */
    uint8_t *out, *part;
    uint64_t *sent;             /* when each call in flight was sent, by id modulo depth */
};

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Wait without sleeping. A generator that sleeps is woken by the server's write, which then pays some microseconds for it: a server
 * that is slower than the generator would be charged for that, one that is faster (an echo) would not. */
static int wait_awake(int poll, struct epoll_event *events) {
    uint64_t give_up = now() + (uint64_t)PATIENCE_MS * 1000000;
    int ready;
    do ready = epoll_wait(poll, events, EVENTS, 0);
    while (ready == 0 && now() < give_up);
    return ready;
}

static void put_id(uint8_t *at, uint64_t id) {
    id = __builtin_bswap64(id);
    memcpy(at, &id, 8);
}

/* Buckets grow with the value, so that each is within 1.6 % of what it holds. */
static unsigned bucket(uint64_t ns) {
    if (ns < SUB) return (unsigned)ns;
    unsigned power = 63u - (unsigned)__builtin_clzll(ns);
    return (power - 5) * SUB + (unsigned)((ns >> (power - 6)) & (SUB - 1));
}

static uint64_t bucket_value(unsigned index) {
    if (index < SUB) return index;
    unsigned power = index / SUB + 5;
    return ((uint64_t)(SUB + index % SUB) << (power - 6)) + (1ull << (power - 6)) / 2;
}

static uint64_t percentile(const uint64_t *histogram, uint64_t calls, double share) {
    uint64_t seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen && (double)seen >= share * (double)calls) return bucket_value(i);
    }
    return 0;
}

static int send_owed(struct line *l, const struct wire *w, uint64_t depth, uint64_t at) {
    if (l->out_at == l->out_end && l->owed) {
        l->out_at = 0;
        l->out_end = l->owed * w->request_size;
        for (uint64_t i = 0; i < l->owed; i++, l->next_id++) {
            if (w->request_id_at >= 0) put_id(l->out + i * w->request_size + w->request_id_at, l->next_id);
            l->sent[l->next_id % depth] = at;
        }
        l->in_flight += l->owed;
        l->owed = 0;
    }
    while (l->out_at < l->out_end) {
        ssize_t n = send(l->fd, l->out + l->out_at, l->out_end - l->out_at, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN ? 0 : -1; /* EAGAIN: the next edge of EPOLLOUT comes back here */
        l->out_at += (uint64_t)n;
    }
    return 0;
}

static void take_answer(struct line *l, const struct wire *w, const uint8_t *answer, uint64_t depth, uint64_t at,
                        struct tally *t, uint64_t *histogram) {
    uint8_t differs = 0;
    if (!l->in_flight) { /* an answer that nobody asked for */
        t->wrong++;
        return;
    }
    for (uint64_t i = 0; i < w->answer_size; i++) differs |= (uint8_t)((answer[i] ^ w->answer[i]) & w->mask[i]);
    if (w->answer_id_at >= 0) {
        uint64_t id;
        memcpy(&id, answer + w->answer_id_at, 8);
        differs |= __builtin_bswap64(id) != l->want_id;
    }
    t->wrong += differs != 0;
    histogram[bucket(at - l->sent[l->want_id % depth])]++;
    l->want_id++;
    l->in_flight--;
    t->calls++;
}

static void take_bytes(struct line *l, const struct wire *w, const uint8_t *data, uint64_t size, uint64_t depth,
                       uint64_t at, struct tally *t, uint64_t *histogram) {
    if (l->part_size) {
        uint64_t rest = w->answer_size - l->part_size, more = size < rest ? size : rest;
        memcpy(l->part + l->part_size, data, more);
        l->part_size += more;
        data += more;
        size -= more;
        if (l->part_size < w->answer_size) return;
        l->part_size = 0;
        take_answer(l, w, l->part, depth, at, t, histogram);
    }
    for (; size >= w->answer_size; data += w->answer_size, size -= w->answer_size)
        take_answer(l, w, data, depth, at, t, histogram);
    memcpy(l->part, data, size);
    l->part_size = size;
}

/* One readiness of one connection; -1 when it is lost. A read that does not fill the buffer has emptied the socket. */
static int serve(struct line *l, const struct wire *w, uint8_t *buffer, uint64_t depth, uint64_t end, struct tally *t,
                 uint64_t *histogram) {
    ssize_t n;
    do {
        n = recv(l->fd, buffer, READ_SIZE, 0);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) return -1;
        uint64_t at = now(), before = t->calls;
        take_bytes(l, w, buffer, (uint64_t)n, depth, at, t, histogram);
        if (at < end) l->owed += t->calls - before;
    } while (n == READ_SIZE);
    return send_owed(l, w, depth, now());
}

static uint64_t in_flight(const struct line *lines, int count) {
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum += lines[i].in_flight;
    return sum;
}

static int loop(int poll, struct line *lines, int count, const struct wire *w, uint64_t depth, uint64_t end,
                struct tally *t, uint64_t *histogram) {
    struct epoll_event events[EVENTS];
    uint8_t *buffer = malloc(READ_SIZE);
    int lost = 0;
    while (!lost && (now() < end || in_flight(lines, count))) {
        int ready = wait_awake(poll, events);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) lost = 1;
        for (int i = 0; i < ready && !lost; i++)
            lost = serve(events[i].data.ptr, w, buffer, depth, end, t, histogram) < 0;
    }
    free(buffer);
    return lost;
}

/* Drive `count` connections for `nanoseconds`, then wait for what is in flight. `ids` holds each connection's next id,
 * and is moved on. Returns 0, or the number of calls never answered (a lost connection or five silent seconds). */
uint64_t load_run(const int *fds, uint64_t *ids, int count, uint64_t depth, const struct wire *w, uint64_t nanoseconds,
                  struct tally *t) {
    int poll = epoll_create1(0);
    struct line *lines = calloc((size_t)count, sizeof *lines);
    uint64_t *histogram = calloc(BUCKETS, sizeof *histogram);
    uint64_t start = now(), end = start + nanoseconds;
    memset(t, 0, sizeof *t);
    for (int i = 0; i < count; i++) {
        struct line *l = &lines[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = l};
        *l = (struct line){.fd = fds[i], .next_id = ids[i], .want_id = ids[i], .owed = depth};
        l->out = malloc(depth * w->request_size);
        l->part = malloc(w->answer_size);
        l->sent = calloc(depth, sizeof *l->sent);
        for (uint64_t j = 0; j < depth; j++) memcpy(l->out + j * w->request_size, w->request, w->request_size);
        epoll_ctl(poll, EPOLL_CTL_ADD, l->fd, &event);
        send_owed(l, w, depth, now());
    }
    loop(poll, lines, count, w, depth, end, t, histogram);
    t->nanoseconds = now() - start;
    t->p50 = percentile(histogram, t->calls, 0.50);
    t->p99 = percentile(histogram, t->calls, 0.99);
    uint64_t unanswered = in_flight(lines, count);
    for (int i = 0; i < count; i++) {
        epoll_ctl(poll, EPOLL_CTL_DEL, lines[i].fd, NULL);
        ids[i] = lines[i].next_id;
        free(lines[i].out), free(lines[i].part), free(lines[i].sent);
    }
    free(lines), free(histogram);
    close(poll);
    return unanswered;
}
