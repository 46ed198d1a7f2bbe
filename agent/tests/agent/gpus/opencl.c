/* A stand-in for OpenCL's library, for tests: as much of its interface as the agent asks for. What it tells
 * stands in a text file beside it, `devices`, which is read at the first call:
 *
 *   platform VERSION...
 *   gpu VENDOR BUS UNITS CLOCK_MHZ MEMORY_MIB NAME...   (VENDOR: amd, intel, nvidia or other; BUS 0: not said)
 *   crash | hang | nonsense | error
 *
 * Each device belongs to the platform that stands before it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char version[64]; } platform;
typedef struct { platform *of; char vendor[16], name[96]; unsigned bus, units, clock; uint64_t mib; } gpu;

enum { OK = 0, NOT_FOUND = -1, OUT_OF_RESOURCES = -5, INVALID = -30 };

static platform platforms[64];
static gpu gpus[256];
static unsigned platform_count, gpu_count;
static int nonsense, error, loaded;

static void load(void) {
    Dl_info self;
    char path[4096], line[512];
    if (loaded++) return;
    if (!dladdr((void *)load, &self)) abort();
    snprintf(path, sizeof path, "%s", self.dli_fname);
    strcpy(strrchr(path, '/') + 1, "devices");
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        gpu *g = &gpus[gpu_count];
        if (sscanf(line, "gpu %15s %u %u %u %lu %95[^\n]", g->vendor, &g->bus, &g->units, &g->clock, &g->mib,
                   g->name) == 6) {
            g->of = &platforms[platform_count - 1];
            gpu_count++;
        } else if (sscanf(line, "platform %63[^\n]", platforms[platform_count].version) == 1)
            platform_count++;
        else if (!strncmp(line, "crash", 5))
            abort();
        else if (!strncmp(line, "hang", 4))
            for (;;) pause();
        else if (!strncmp(line, "nonsense", 8))
            nonsense = 1;
        else if (!strncmp(line, "error", 5))
            error = 1;
    }
    fclose(file);
}

int clGetPlatformIDs(unsigned room, platform **into, unsigned *count) {
    printf("this library prints\n");
    fflush(stdout);
    load();
    if (error) return OUT_OF_RESOURCES;
    for (unsigned i = 0; into && i < room && i < platform_count; i++) into[i] = &platforms[i];
    if (count) *count = nonsense ? ~0u : platform_count;
    return OK;
}
static int give(const void *value, size_t length, size_t room, void *into, size_t *said) {
    if (said) *said = nonsense ? ~(size_t)0 : length;
    if (into && room < length) return INVALID;
    if (into) memcpy(into, value, length);
    return OK;
}
static int give_text(const char *text, size_t room, void *into, size_t *said) {
    return give(text, strlen(text) + 1, room, into, said);
}
static int give_uint(unsigned value, size_t room, void *into, size_t *said) {
    return give(&value, sizeof value, room, into, said);
}
static int give_ulong(uint64_t value, size_t room, void *into, size_t *said) {
    return give(&value, sizeof value, room, into, said);
}
int clGetPlatformInfo(platform *of, unsigned what, size_t room, void *into, size_t *said) {
    return what == 0x0901 ? give_text(of->version, room, into, said) : INVALID;
}
/* There is one CPU on every platform. It is told to those who ask for more than GPUs. */
int clGetDeviceIDs(platform *of, uint64_t kinds, unsigned room, gpu **into, unsigned *count) {
    static gpu cpu = {0, "intel", "a CPU", 0, 64, 4000, 1 << 20};
    unsigned found = 0;
    if (kinds & 2 && into && found < room) into[found++] = &cpu;
    for (unsigned i = 0; i < gpu_count && kinds & 4; i++)
        if (gpus[i].of == of && into && found < room) into[found++] = &gpus[i];
    if (count) *count = nonsense ? ~0u : found;
    return found ? OK : NOT_FOUND;
}
static const char *vendor(const gpu *g) {
    if (!strcmp(g->vendor, "amd")) return "Advanced Micro Devices, Inc.";
    if (!strcmp(g->vendor, "intel")) return "Intel(R) Corporation";
    if (!strcmp(g->vendor, "nvidia")) return "NVIDIA Corporation";
    return "The pocl project";
}
int clGetDeviceInfo(gpu *of, unsigned what, size_t room, void *into, size_t *said) {
    int amd = !strcmp(of->vendor, "amd"), nvidia = !strcmp(of->vendor, "nvidia");
    char topology[24] = {1};
    unsigned place[4] = {0, of->bus, 0, 0};
    topology[21] = (char)of->bus;
    switch (what) {
    case 0x1001: return give_uint(amd ? 0x1002 : nvidia ? 0x10de : 0x8086, room, into, said);
    case 0x1002: return give_uint(of->units, room, into, said);
    case 0x100c: return give_uint(of->clock, room, into, said);
    case 0x101b: return give_ulong(191, room, into, said);
    case 0x101f: return give_ulong(of->mib << 20, room, into, said);
    case 0x1023: return give_ulong(65536, room, into, said);
    case 0x1026: case 0x1027: return give_uint(1, room, into, said);
    case 0x1029: return give_ulong(1, room, into, said);
    case 0x102b: return give_text(amd ? "gfx1100" : of->name, room, into, said);
    case 0x102c: return give_text(vendor(of), room, into, said);
    case 0x102d: return give_text("3590.0 (HSA1.1,LC)", room, into, said);
    case 0x102f: return give_text(amd ? "OpenCL 2.0 " : "OpenCL 3.0 NEO ", room, into, said);
    case 0x1030:
        if (!of->bus) return give_text("cl_khr_fp64", room, into, said);
        return give_text(amd      ? "cl_khr_fp64 cl_amd_device_attribute_query"
                         : nvidia ? "cl_khr_fp64 cl_nv_device_attribute_query"
                                  : "cl_khr_fp64 cl_khr_pci_bus_info",
                         room, into, said);
    case 0x1032: return give_ulong(63, room, into, said);
    case 0x410f: return give(place, sizeof place, room, into, said);
    case 0x4008: return give_uint(of->bus, room, into, said);
    case 0x4009: case 0x400a: return give_uint(0, room, into, said);
    case 0x4037: return give(topology, sizeof topology, room, into, said);
    case 0x4038: return give_text(of->name, room, into, said);
    case 0x4040: return give_uint(4, room, into, said);
    case 0x4041: return give_uint(16, room, into, said);
    case 0x4042: return give_uint(1, room, into, said);
    default: return INVALID;
    }
}
