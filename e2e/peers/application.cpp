// An application of BOINC's own kind, for the tests: made with BOINC's library as Debian ships it (libboinc-app-dev).
//
// It counts to the number in its input file, a second of CPU time for every unit, and writes into its output file how far
// it came, and from where it went on when it was started last. It keeps where it is in a checkpoint when the client lets it.
// A second number in the input file is how many child processes it has that compute beside it as long as it runs.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <boinc/boinc_api.h>
#include <boinc/filesys.h>

static double cpu_time() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static std::string resolved(const char* name) {
    char path[4096];
    if (boinc_resolve_filename(name, path, sizeof path)) exit(1);
    return path;
}

// They are gone when it is, however it ends.
static void have_children(long count) {
    for (; count > 0; --count) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile long number = 0;; ++number) {}
        }
    }
}

int main() {
    long last = 0, at = 0, children = 0;
    FILE* in = boinc_fopen(resolved("in").c_str(), "r");
    const bool is_told = in && fscanf(in, "%ld %ld", &last, &children) >= 1;
    if (in) fclose(in);
    BOINC_OPTIONS options;
    boinc_options_defaults(options);
    // So BOINC's library stops children when the client says so.
    options.multi_process = children > 0;
    if (boinc_init_options(&options)) return 1;
    if (!is_told) boinc_finish(2);
    have_children(children);
    if (FILE* kept = boinc_fopen("checkpoint", "r")) {
        if (fscanf(kept, "%ld", &at) != 1) boinc_finish(3);
        fclose(kept);
    }
    const long begun = at;
    while (at < last) {
        // A tenth of a unit each time, so that the client hears often how far this is.
        for (int tenth = 0; tenth < 10; ++tenth) {
            for (const double begin = cpu_time(); cpu_time() - begin < 0.1;) {}
            boinc_fraction_done((at + tenth / 10.0) / last);
        }
        ++at;
        if (boinc_time_to_checkpoint()) {
            FILE* keep = boinc_fopen("checkpoint.new", "w");
            if (!keep || fprintf(keep, "%ld\n", at) < 0 || fclose(keep)) boinc_finish(4);
            if (boinc_rename("checkpoint.new", "checkpoint")) boinc_finish(5);
            boinc_checkpoint_completed();
        }
    }
    FILE* out = boinc_fopen(resolved("out").c_str(), "w");
    if (!out || fprintf(out, "counted to %ld, at last from %ld\n", at, begun) < 0 || fclose(out)) boinc_finish(6);
    boinc_finish(0);
}
