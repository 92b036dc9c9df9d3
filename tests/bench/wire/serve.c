/* The raw limit of this machine: ready frames to all connections, one write for each connection and tick.
 *
 * Commands: all RATE TICK_MS SIZE   RATE events a second, the same to everybody
 *           each RATE SIZE          RATE events a second for each connection, one write each, evenly spread
 *           past COUNT SIZE         whoever connects from now on gets COUNT frames and an end at once
 *           idle | look | mark | quit */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 32768, WAITING_MAX = 8 << 20, FRAME_MAX = 8192 };

struct client {
    int fd;
    bool asked; /* the request has come */
    char *waiting;
    size_t length;
    uint64_t sent; /* its own events, for `each` */
};

static struct client *clients[MOST];
static int count, asked, poller;
static uint64_t frames_sent, dropped;
static char *past;
static size_t past_length;

static const char HEAD[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                           "transfer-encoding: chunked\r\n\r\n";

static size_t frame(char *out, uint64_t n, int size)
{
    char text[FRAME_MAX];
    memset(text, 'x', (size_t)size);
    char stamp[32];
    int digits = snprintf(stamp, sizeof stamp, "@%ld ", (long)wall_us());
    memcpy(text, stamp, (size_t)(digits < size ? digits : size));
    return (size_t)sprintf(out, "id: 1700000000000-%lu\nevent: chunk\ndata: {\"offset\":%lu,\"text\":\"%.*s\",\"progress\":0.5}\n\n",
                           n, (n - 1) * (uint64_t)size, size, text);
}

static void leave(int index)
{
    close(clients[index]->fd);
    asked -= clients[index]->asked;
    free(clients[index]->waiting);
    free(clients[index]);
    clients[index] = clients[--count];
}

static bool keep(struct client *c, const char *data, size_t size)
{
    if (c->length + size > WAITING_MAX)
        return false;
    c->waiting = realloc(c->waiting, c->length + size);
    memcpy(c->waiting + c->length, data, size);
    c->length += size;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    return true;
}

static bool put(struct client *c, const char *data, size_t size)
{
    if (c->length)
        return keep(c, data, size);
    ssize_t done = send(c->fd, data, size, 0);
    if (done < 0)
        done = errno == EAGAIN ? 0 : -1;
    if (done < 0)
        return false;
    return (size_t)done == size || keep(c, data + done, size - (size_t)done);
}

static void resume(struct client *c)
{
    ssize_t done = send(c->fd, c->waiting, c->length, 0);
    if (done <= 0)
        return;
    c->length -= (size_t)done;
    memmove(c->waiting, c->waiting + done, c->length);
    if (!c->length) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    }
}

static void hear(struct client *c)
{
    char request[8192];
    ssize_t got = recv(c->fd, request, sizeof request, 0);
    if (got > 0 && !c->asked) {
        c->asked = true;
        asked++;
        put(c, HEAD, sizeof HEAD - 1);
        if (past)
            put(c, past, past_length);
    } else if (got == 0 || (got < 0 && errno != EAGAIN)) {
        for (int i = 0; i < count; i++)
            if (clients[i] == c)
                return leave(i);
    }
}

static void enter(int listener)
{
    int fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        if (count == MOST) {
            close(fd);
            continue;
        }
        nonblocking(fd);
        struct client *c = calloc(1, sizeof *c);
        c->fd = fd;
        clients[count++] = c;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

/* `many` frames from number `first` as one chunk of chunked encoding. */
static char *run(uint64_t first, uint64_t many, int size, size_t *length, const char *end)
{
    char *out = malloc(many * (size_t)(size + 160) + 256), *at = out + 16;
    for (uint64_t i = 0; i < many; i++)
        at += frame(at, first + i, size);
    at += sprintf(at, "%s", end);
    char head[17];
    int digits = sprintf(head, "%zx\r\n", (size_t)(at - out - 16));
    memcpy(out + 16 - digits, head, (size_t)digits);
    memcpy(at, "\r\n", 2);
    *length = (size_t)(at + 2 - (out + 16 - digits));
    memmove(out, out + 16 - digits, *length);
    return out;
}

static double rate;
static int tick_ms, size_each;
static bool broadcast;
static int64_t began;
static uint64_t made, made_before; /* numbers go on from run to run */

static void send_all(void)
{
    uint64_t due = made_before + (uint64_t)(rate * (double)(clock_us() - began) / 1e6);
    if (due <= made)
        return;
    size_t length;
    char *data = run(made + 1, due - made, size_each, &length, "");
    for (int i = count - 1; i >= 0; i--) {
        if (!clients[i]->asked)
            continue;
        frames_sent += due - made;
        if (!put(clients[i], data, length)) {
            dropped++;
            leave(i);
        }
    }
    free(data);
    made = due;
}

static void send_each(void)
{
    double turns = rate * (double)(clock_us() - began) / 1e6;
    for (int i = count - 1; i >= 0; i--) {
        double mine = turns - (double)i / (count ? count : 1);
        while (clients[i]->asked && (double)clients[i]->sent + 1 <= mine) {
            size_t length;
            char *data = run(++clients[i]->sent, 1, size_each, &length, "");
            frames_sent++;
            bool fine = put(clients[i], data, length);
            free(data);
            if (!fine) {
                dropped++;
                leave(i);
                break;
            }
        }
    }
}

static void obey(char *line)
{
    long many;
    if (sscanf(line, "all %lf %d %d", &rate, &tick_ms, &size_each) == 3) {
        broadcast = true;
        began = clock_us();
        made_before = made;
    } else if (sscanf(line, "each %lf %d", &rate, &size_each) == 2) {
        broadcast = false;
        tick_ms = 1;
        began = clock_us();
    } else if (sscanf(line, "past %ld %d", &many, &size_each) == 2) {
        free(past);
        char end[128];
        sprintf(end, "id: 1700000000000-%ld\nevent: done\ndata: {}\n\n", many + 1);
        past = run(1, (uint64_t)many, size_each, &past_length, end);
    } else if (!strcmp(line, "idle")) {
        rate = 0;
    } else if (!strcmp(line, "quit")) {
        exit(0);
    } else {
        printf("{\"clients\":%d,\"asked\":%d,\"frames\":%lu,\"dropped\":%lu}\n", count, asked, frames_sent, dropped);
        if (!strcmp(line, "mark"))
            frames_sent = dropped = 0;
    }
}

int serve_main(int argc, char **argv)
{
    (void)argc;
    int listener = listen_on(atoi(argv[2]));
    poller = epoll_create1(0);
    struct epoll_event door = {.events = EPOLLIN, .data.ptr = &poller}, words = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &door);
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &words);
    int64_t next = clock_us();
    for (;;) {
        struct epoll_event events[1024];
        int64_t rest = rate > 0 ? (next - clock_us() + 999) / 1000 : 100;
        int many = epoll_wait(poller, events, 1024, rest < 0 ? 0 : (int)rest);
        for (int i = 0; i < many; i++) {
            struct client *c = events[i].data.ptr;
            if (events[i].data.ptr == &poller)
                enter(listener);
            else if (c && events[i].events & EPOLLOUT)
                resume(c);
            else if (c)
                hear(c);
        }
        for (char *line; (line = command());)
            obey(line);
        if (rate > 0 && clock_us() >= next) {
            if (broadcast)
                send_all();
            else
                send_each();
            next += (int64_t)tick_ms * 1000;
            if (next < clock_us())
                next = clock_us();
        }
    }
}
