// Put in front of a server by LD_PRELOAD: its wall clock is off by as many seconds as the file SET_CLOCK_BY says (one
// number of eight bytes, read at each look), so that a test can set it at any moment. The steady clock is left alone.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *by;

__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("SET_CLOCK_BY"), O_RDONLY);
  by = mmap(NULL, sizeof *by, PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int wrong = (int)syscall(SYS_clock_gettime, clock, now);
  if (!wrong && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *by;
  return wrong;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *where) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (where) *where = exact.tv_sec;
  return exact.tv_sec;
}
