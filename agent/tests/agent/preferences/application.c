/* A job of the tests' own. It heeds what it is told and says that it has saved its state, as one made with
 * BOINC's library does. Its words: `compute`, else it waits; `hold=N`, with N megabytes of memory. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void work(double secs) {
    double end = cpu() + secs;
    while (cpu() < end) {}
}

int main(int count, char **words) {
    int computes = 0, rests = 0;
    for (int at = 1; at < count; at++) {
        if (!strcmp(words[at], "compute")) computes = 1;
        if (!strncmp(words[at], "hold=", 5)) {
            size_t bytes = (size_t)atoi(words[at] + 5) * 1000000;
            char *held = malloc(bytes);
            if (!held) return 11;
            memset(held, 1, bytes);
        }
    }
    int file = open("boinc_mmap_file", O_RDWR);
    volatile char *channels = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (channels == MAP_FAILED) return 10;
    work(0.03);
    for (;;) {
        if (channels[0]) {
            char told[1024];
            for (int at = 0; at < 1023; at++) told[at] = channels[at + 1];
            told[1023] = 0;
            channels[0] = 0;
            if (strstr(told, "<quit/>")) return 0;
            if (strstr(told, "<abort/>")) return 12;
            if (strstr(told, "<suspend/>")) rests = 1;
            if (strstr(told, "<resume/>")) rests = 0;
        }
        channels[0x1000] = 0;
        if (!channels[0x1400]) {
            snprintf((char *)channels + 0x1401, 1000,
                     "<current_cpu_time>%f</current_cpu_time>\n<checkpoint_cpu_time>%f</checkpoint_cpu_time>\n", cpu(),
                     cpu());
            channels[0x1400] = 1;
        }
        if (computes && !rests) work(0.01);
        else nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}
