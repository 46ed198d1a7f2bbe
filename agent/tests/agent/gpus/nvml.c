/* A stand-in for NVIDIA's management library, for tests: as much of its interface as the agent asks for. What
 * it tells stands in a text file beside it, `devices`, which is read anew at each count of devices:
 *
 *   gpu BUS MAJOR MINOR CLOCK_MHZ CORES MEMORY_MIB NAME...
 *   process BUS PID c|g MEMORY_MIB
 *   heat BUS DEGREES
 *   crash | hang | nonsense | lost
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned bus, major, minor, clock, cores; unsigned long long mib; char name[96]; unsigned heat; } gpu;
typedef struct { unsigned bus, pid; char kind; unsigned long long mib; } process;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } process_info;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci_info;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_info;

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7 };

static gpu gpus[64];
static process processes[256];
static unsigned gpu_count, process_count;
static int nonsense, lost;

static void load(void) {
    Dl_info self;
    char path[4096], line[512];
    gpu_count = process_count = nonsense = lost = 0;
    if (!dladdr((void *)load, &self)) abort();
    snprintf(path, sizeof path, "%s", self.dli_fname);
    strcpy(strrchr(path, '/') + 1, "devices");
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        gpu *g = &gpus[gpu_count];
        process *p = &processes[process_count];
        unsigned bus, heat;
        if (sscanf(line, "heat %u %u", &bus, &heat) == 2) {
            for (unsigned i = 0; i < gpu_count; i++)
                if (gpus[i].bus == bus) gpus[i].heat = heat;
        } else if (sscanf(line, "gpu %u %u %u %u %u %llu %95[^\n]", &g->bus, &g->major, &g->minor, &g->clock, &g->cores,
                   &g->mib, g->name) == 7)
            gpus[gpu_count++].heat = 0;
        else if (sscanf(line, "process %u %u %c %llu", &p->bus, &p->pid, &p->kind, &p->mib) == 4)
            process_count++;
        else if (!strncmp(line, "crash", 5))
            abort();
        else if (!strncmp(line, "hang", 4))
            for (;;) pause();
        else if (!strncmp(line, "nonsense", 8))
            nonsense = 1;
        else if (!strncmp(line, "lost", 4))
            lost = 1;
    }
    fclose(file);
}

int nvmlInit_v2(void) { printf("this library prints\n"); fflush(stdout); return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "535.129.03"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = nonsense ? -7 : 12020; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    load();
    *count = nonsense ? 1000000 : gpu_count;
    return lost ? 15 : OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (nonsense) index = 0;
    if (index >= gpu_count) return INVALID;
    *device = &gpus[index];
    return OK;
}
int nvmlDeviceGetName(gpu *device, char *text, unsigned size) {
    if (nonsense) {
        memset(text, 0x1b, size - 1);
        text[size - 1] = 0;
    } else {
        snprintf(text, size, "%s", device->name);
    }
    return OK;
}
int nvmlDeviceGetPciInfo_v3(gpu *device, pci_info *info) {
    memset(info, 0, sizeof *info);
    info->bus = device->bus;
    snprintf(info->text, sizeof info->text, "00000000:%02X:00.0", device->bus);
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(gpu *device, memory_info *info) {
    info->total = nonsense ? ~0ull : device->mib << 20;
    info->free = nonsense ? ~0ull : info->total - (100 << 20);
    info->used = 100 << 20;
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(gpu *device, int *major, int *minor) {
    *major = nonsense ? -1 : (int)device->major;
    *minor = (int)device->minor;
    return OK;
}
int nvmlDeviceGetMaxClockInfo(gpu *device, int kind, unsigned *mhz) {
    (void)kind;
    *mhz = nonsense ? ~0u : device->clock;
    return device->clock ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetNumGpuCores(gpu *device, unsigned *cores) {
    *cores = nonsense ? ~0u : device->cores;
    return device->cores ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetTemperature(gpu *device, int sensor, unsigned *degrees) {
    (void)sensor;
    *degrees = nonsense ? ~0u : device->heat;
    return device->heat || nonsense ? OK : NOT_SUPPORTED;
}
static int list(gpu *device, char kind, unsigned *count, process_info *into) {
    unsigned room = *count, found = 0;
    for (unsigned i = 0; i < process_count; i++) {
        if (processes[i].bus != device->bus || processes[i].kind != kind) continue;
        if (found < room && into) {
            process_info one = {processes[i].pid, processes[i].mib << 20, ~0u, ~0u};
            into[found] = one;
        }
        found++;
    }
    *count = found;
    return found > room ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(gpu *device, unsigned *count, process_info *into) {
    return list(device, 'c', count, into);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(gpu *device, unsigned *count, process_info *into) {
    return list(device, 'g', count, into);
}
