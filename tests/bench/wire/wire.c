/* wire: the two ends of a measurement.
 *
 *   wire watch PORT LIST    opens many Server-Sent-Events connections, checks what comes, measures delays
 *   wire serve PORT         the raw limit: sends ready frames to all connections, and nothing else
 *
 * Both take commands on stdin and print one line of JSON for `look` and `mark` (which also resets the counters), so the
 * driver decides when a measurement begins. Loopback only. */
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int bucket(uint64_t us)
{
    if (us < 64)
        return (int)us;
    int top = 63 - __builtin_clzll(us);
    int index = (top - 5) * 64 + (int)((us >> (top - 6)) & 63);
    return index < BUCKETS ? index : BUCKETS - 1;
}

static uint64_t bucket_start(int index)
{
    if (index < 64)
        return (uint64_t)index;
    int top = index / 64 + 5;
    return (1ull << top) + ((uint64_t)(index % 64) << (top - 6));
}

void histogram_add(struct histogram *h, int64_t us)
{
    uint64_t value = us < 0 ? 0 : (uint64_t)us;
    h->count++;
    h->at[bucket(value)]++;
    if (value > h->max)
        h->max = value;
}

static uint64_t percentile(const struct histogram *h, double share)
{
    uint64_t want = (uint64_t)(share * (double)h->count), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += h->at[i];
        if (seen > want)
            return bucket_start(i);
    }
    return h->max;
}

void histogram_print(const char *name, const struct histogram *h)
{
    printf("\"%s\":{\"count\":%lu,\"p50\":%lu,\"p90\":%lu,\"p99\":%lu,\"max\":%lu}", name, h->count,
           percentile(h, 0.5), percentile(h, 0.9), percentile(h, 0.99), h->max);
}

static int64_t read_clock(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t wall_us(void) { return read_clock(CLOCK_REALTIME); }
int64_t clock_us(void) { return read_clock(CLOCK_MONOTONIC); }

void die(const char *what)
{
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

int nonblocking(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&where, sizeof where) || listen(fd, 4096))
        die("listen");
    nonblocking(fd);
    return fd;
}

char *command(void)
{
    static char buffer[4096], line[4096];
    static size_t length;
    static bool over;
    char *end = memchr(buffer, '\n', length);
    if (!end && !over) {
        ssize_t got = read(0, buffer + length, sizeof buffer - length);
        if (got > 0)
            length += (size_t)got;
        else if (got == 0 || errno != EAGAIN)
            over = true;
        end = memchr(buffer, '\n', length);
    }
    if (!end)
        return over ? strcpy(line, "quit") : NULL;
    size_t size = (size_t)(end - buffer);
    memcpy(line, buffer, size);
    line[size] = 0;
    length -= size + 1;
    memmove(buffer, end + 1, length);
    return line;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 4 && !strcmp(argv[1], "watch"))
        return watch_main(argc, argv);
    if (argc == 3 && !strcmp(argv[1], "serve"))
        return serve_main(argc, argv);
    fprintf(stderr, "usage: wire watch PORT LIST | wire serve PORT\n");
    return 2;
}
