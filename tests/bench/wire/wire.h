/* Shared by both halves of the load tool: time, a histogram, and commands on stdin. Linux only. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUCKETS 2048

/* Counts by microseconds; 64 buckets for each doubling, so a percentile is right to 1.6 %. */
struct histogram {
    uint64_t count, max;
    uint64_t at[BUCKETS];
};

void histogram_add(struct histogram *h, int64_t us);
void histogram_print(const char *name, const struct histogram *h); /* "name":{...} in microseconds */

int64_t wall_us(void);  /* the publisher's clock: delays are measured against it */
int64_t clock_us(void); /* never steps: for intervals */

int listen_on(int port);
int nonblocking(int fd);
void die(const char *what);

/* One line from stdin without its end, or NULL when no whole line is there. At the end of stdin: "quit". */
char *command(void);

int watch_main(int argc, char **argv);
int serve_main(int argc, char **argv);

#endif
