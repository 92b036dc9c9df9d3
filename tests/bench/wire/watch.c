/* Many viewers. Each reads its stream, and every event is checked: ids rise, and each chunk begins where the one before
 * it ended. LIST holds one line for each viewer (taken in turn): path, and optionally a cursor and the number of
 * characters that its text has there.
 *
 * Commands: open COUNT SECONDS BURST   COUNT viewers more, spread over SECONDS, at most BURST waiting for their head
 *           until N                    a viewer is done when it has event N, or an end
 *           drop COUNT                 COUNT viewers lose their connection, and come back with their cursor
 *           stall COUNT                COUNT viewers stop reading
 *           look | mark | quit */
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RAW = 256 << 10, WORK = 1 << 20 };

enum where { CLOSED, HEAD, SIZE, BODY, TAIL, LIVE };

struct row {
    char *path;
    char *cursor;
    int64_t chars;
};

struct viewer {
    int fd;
    enum where where; /* LIVE: a body without chunked encoding */
    struct row *row;
    uint64_t epoch, n, left; /* left: of the chunk being read */
    int64_t chars, asked_at;
    bool done, stalled, finished;
    char *rest; /* an unfinished head or frame */
    size_t length;
};

static struct row *rows;
static int row_count, poller, port;
static struct viewer *viewers;
static int made, wanted, burst, waiting, next_drop, next_stall;
static int64_t open_at;
static double open_spread;
static int open_first;
static uint64_t until = UINT64_MAX;

static struct {
    uint64_t heads, refused, cut, finished, frames, bytes, reads, doubled, jumps, holes, rewinds, done;
    int64_t last_head, last_done;
    struct histogram delay, head, complete;
} seen;

static void load(const char *file)
{
    FILE *in = fopen(file, "r");
    char line[1024], path[512], cursor[256];
    if (!in)
        die(file);
    while (fgets(line, sizeof line, in)) {
        long chars = 0;
        int fields = sscanf(line, "%511s %255s %ld", path, cursor, &chars);
        if (fields < 1)
            continue;
        rows = realloc(rows, sizeof *rows * (size_t)(row_count + 1));
        rows[row_count++] = (struct row){strdup(path), fields > 1 ? strdup(cursor) : NULL, fields > 2 ? chars : 0};
    }
    fclose(in);
}

static void away(struct viewer *v)
{
    if (v->where == HEAD)
        waiting--;
    if (v->where != CLOSED)
        close(v->fd);
    v->where = CLOSED;
    v->length = 0;
}

static void ask(struct viewer *v)
{
    char request[1200], cursor[256] = "";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v->fd = socket(AF_INET, SOCK_STREAM, 0);
    v->asked_at = clock_us();
    if (v->fd < 0 || connect(v->fd, (struct sockaddr *)&to, sizeof to)) {
        seen.refused++;
        if (v->fd >= 0)
            close(v->fd);
        return;
    }
    nonblocking(v->fd);
    if (v->n)
        sprintf(cursor, "Last-Event-ID: %lu-%lu\r\n", v->epoch, v->n);
    else if (v->row->cursor)
        snprintf(cursor, sizeof cursor, "Last-Event-ID: %s\r\n", v->row->cursor);
    int size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: text/event-stream\r\n%s\r\n",
                        v->row->path, port, cursor);
    if (send(v->fd, request, (size_t)size, 0) != size)
        die("request");
    v->where = HEAD;
    v->stalled = false;
    waiting++;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = v};
    epoll_ctl(poller, EPOLL_CTL_ADD, v->fd, &event);
}

static void complete(struct viewer *v)
{
    if (v->done)
        return;
    v->done = true;
    seen.done++;
    seen.last_done = clock_us() - open_at;
    histogram_add(&seen.complete, clock_us() - v->asked_at);
}

static void chunk(struct viewer *v, const char *data, const char *end, int64_t now)
{
    static const char first[] = "{\"offset\":", second[] = ",\"text\":\"";
    char *at;
    if (memcmp(data, first, sizeof first - 1))
        return;
    int64_t offset = strtol(data + sizeof first - 1, &at, 10);
    if (memcmp(at, second, sizeof second - 1))
        return;
    const char *text = at + sizeof second - 1, *stop = memchr(text, '"', (size_t)(end - text));
    seen.holes += offset > v->chars;
    seen.rewinds += offset < v->chars;
    v->chars = offset + (stop ? stop - text : 0);
    if (*text == '@')
        histogram_add(&seen.delay, now - strtol(text + 1, NULL, 10));
}

/* Take all whole frames of work[0..size]; returns how much that was. */
static size_t take(struct viewer *v, const char *work, size_t size, int64_t now)
{
    const char *line = work, *frame = work, *end = work + size, *data = NULL, *data_end = NULL, *name = NULL, *stop;
    uint64_t epoch = 0, n = 0;
    while ((stop = memchr(line, '\n', (size_t)(end - line)))) {
        if (stop == line) {
            if (data && name) {
                seen.frames++;
                if (v->n && (epoch < v->epoch || n <= v->n))
                    seen.doubled++;
                else if (v->n && n != v->n + 1)
                    seen.jumps++;
                v->epoch = epoch;
                v->n = n;
                if (*name == 'c' && name[2] == 'u')
                    chunk(v, data, data_end, now);
                else if (*name == 'd' || *name == 'f' || (*name == 'c' && name[1] == 'a'))
                    v->finished = true;
                if (n >= until || v->finished)
                    complete(v);
            }
            data = name = NULL;
            frame = stop + 1;
        } else if (*line == 'd') {
            data = line + 6;
            data_end = stop;
        } else if (*line == 'e') {
            name = line + 7;
        } else if (*line == 'i') {
            char *at;
            epoch = strtoul(line + 4, &at, 10);
            n = strtoul(at + 1, NULL, 10);
        }
        line = stop + 1;
    }
    return (size_t)(frame - work);
}

static void keep(struct viewer *v, const char *data, size_t size)
{
    v->rest = size ? realloc(v->rest, size) : (free(v->rest), NULL);
    if (size)
        memcpy(v->rest, data, size);
    v->length = size;
}

/* The head of the response; returns where the body begins, or 0. */
static size_t head(struct viewer *v, char *work, size_t size)
{
    char *end = memmem(work, size, "\r\n\r\n", 4);
    if (!end)
        return 0;
    *end = 0;
    bool fine = size > 12 && !memcmp(work + 9, "200", 3);
    if (!fine) {
        seen.refused++;
        away(v);
        return 0;
    }
    waiting--;
    seen.heads++;
    seen.last_head = clock_us() - open_at;
    histogram_add(&seen.head, clock_us() - v->asked_at);
    v->where = strcasestr(work, "transfer-encoding: chunked") ? SIZE : LIVE;
    v->left = 0;
    return (size_t)(end + 4 - work);
}

/* Strip the chunked encoding of raw[0..size] into `out`; returns how many bytes came out. */
static size_t strip(struct viewer *v, const char *raw, size_t size, char *out)
{
    size_t made_here = 0;
    for (size_t i = 0; i < size;) {
        if (v->where == SIZE) {
            char c = raw[i++];
            if (c == '\n') {
                v->where = BODY;
                if (!v->left)
                    return v->where = TAIL, made_here;
            } else if (c != '\r')
                v->left = v->left * 16 + (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        } else if (v->where == BODY) {
            size_t part = size - i < v->left ? size - i : v->left;
            memcpy(out + made_here, raw + i, part);
            made_here += part;
            i += part;
            v->left -= part;
            if (!v->left)
                v->where = TAIL;
        } else {
            if (raw[i++] == '\n')
                v->where = SIZE;
        }
    }
    return made_here;
}

static void hear(struct viewer *v)
{
    static char raw[RAW], work[WORK];
    ssize_t got = recv(v->fd, raw, RAW, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        if (v->finished)
            seen.finished++;
        else
            seen.cut++;
        return away(v);
    }
    int64_t now = wall_us();
    size_t size = (size_t)got, length = v->length;
    seen.bytes += size;
    seen.reads++;
    if (length)
        memcpy(work, v->rest, length);
    if (v->where == HEAD) {
        memcpy(work + length, raw, size);
        size_t start = head(v, work, length + size);
        if (!start) {
            if (v->where == HEAD)
                keep(v, work, length + size);
            return;
        }
        size = length + size - start;
        memcpy(raw, work + start, size);
        length = 0;
    }
    if (v->where == LIVE) {
        memcpy(work + length, raw, size);
        length += size;
    } else {
        length += strip(v, raw, size, work + length);
    }
    size_t used = take(v, work, length, now);
    keep(v, work + used, length - used);
}

static void open_more(void)
{
    while (made < wanted && waiting < burst) {
        double share = open_spread > 0 ? (double)(clock_us() - open_at) / (open_spread * 1e6) : 1;
        if (made - open_first >= share * (wanted - open_first))
            return;
        struct viewer *v = &viewers[made];
        v->row = &rows[made++ % row_count];
        v->chars = v->row->cursor ? v->row->chars : 0;
        ask(v);
    }
}

static void report(void)
{
    int alive = 0;
    for (int i = 0; i < made; i++)
        alive += viewers[i].where > HEAD;
    printf("{\"made\":%d,\"alive\":%d,\"heads\":%lu,\"refused\":%lu,\"cut\":%lu,\"finished\":%lu,\"done\":%lu,", made, alive,
           seen.heads, seen.refused, seen.cut, seen.finished, seen.done);
    printf("\"frames\":%lu,\"bytes\":%lu,\"reads\":%lu,\"doubled\":%lu,\"jumps\":%lu,\"holes\":%lu,\"rewinds\":%lu,", seen.frames,
           seen.bytes, seen.reads, seen.doubled, seen.jumps, seen.holes, seen.rewinds);
    printf("\"heads_us\":%ld,\"done_us\":%ld,", seen.last_head, seen.last_done);
    histogram_print("delay", &seen.delay);
    printf(",");
    histogram_print("head", &seen.head);
    printf(",");
    histogram_print("complete", &seen.complete);
    printf("}\n");
}

static void obey(char *line)
{
    int many;
    if (sscanf(line, "open %d %lf %d", &many, &open_spread, &burst) == 3) {
        open_first = made;
        wanted = made + many;
        open_at = clock_us();
    } else if (sscanf(line, "drop %d", &many) == 1) {
        for (; many > 0 && made; many--) {
            struct viewer *v = &viewers[next_drop++ % made];
            if (v->finished)
                continue;
            away(v);
            ask(v);
        }
    } else if (sscanf(line, "stall %d", &many) == 1) {
        for (; many > 0 && next_stall < made; many--, next_stall++) {
            viewers[next_stall].stalled = true;
            epoll_ctl(poller, EPOLL_CTL_DEL, viewers[next_stall].fd, NULL);
        }
    } else if (sscanf(line, "until %lu", &until) == 1) {
        return;
    } else if (!strcmp(line, "quit")) {
        exit(0);
    } else {
        report();
        if (!strcmp(line, "mark"))
            memset(&seen, 0, sizeof seen);
    }
}

int watch_main(int argc, char **argv)
{
    (void)argc;
    port = atoi(argv[2]);
    load(argv[3]);
    viewers = calloc(1 << 16, sizeof *viewers);
    poller = epoll_create1(0);
    struct epoll_event words = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &words);
    for (;;) {
        struct epoll_event events[512];
        int many = epoll_wait(poller, events, 512, made < wanted ? 1 : 1000);
        for (int i = 0; i < many; i++) {
            struct viewer *v = events[i].data.ptr;
            if (v && v->where != CLOSED)
                hear(v);
        }
        for (char *line; (line = command());)
            obey(line);
        open_more();
    }
}
