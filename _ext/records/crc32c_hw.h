/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): the CPU's instruction over three interleaved streams, or slicing by
 * eight in software.
 *
 * The instruction has a latency of three cycles and a throughput of one, so one stream uses a third of it. Three streams of
 * equal length run side by side and are combined by "shift": the CRC state after L zero bytes is linear in the
 * state, so four look-ups in tables of 256 entries, one for each byte of the state, compute it.
 *
 * The functions pass the raw register (no inversion); crc32c_extend() at the end inverts on both sides.
 * Tables are filled once by crc32c_prepare(), which the module runs when it is imported; afterwards they are only read.
 */
#ifndef ODRADEK_CRC32C_HW_H
#define ODRADEK_CRC32C_HW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC32C_LONG 4096  /* bytes of each stream, for large data */
#define CRC32C_SHORT 256  /* bytes of each stream, for batches of one to some KiB */

static uint32_t crc32c_slices[8][256];
static uint32_t crc32c_shift_long[4][256];
static uint32_t crc32c_shift_short[4][256];
static int crc32c_hardware_found;

static inline uint64_t crc32c_load64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint32_t crc32c_state_software(uint32_t state, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word = crc32c_load64(p) ^ state;
        state = crc32c_slices[7][word & 0xFF] ^ crc32c_slices[6][(word >> 8) & 0xFF] ^
                crc32c_slices[5][(word >> 16) & 0xFF] ^ crc32c_slices[4][(word >> 24) & 0xFF] ^
                crc32c_slices[3][(word >> 32) & 0xFF] ^ crc32c_slices[2][(word >> 40) & 0xFF] ^
                crc32c_slices[1][(word >> 48) & 0xFF] ^ crc32c_slices[0][word >> 56];
    }
    for (; n; ++p, --n)
        state = crc32c_slices[0][(state ^ *p) & 0xFF] ^ (state >> 8);
    return state;
}

static inline uint32_t crc32c_shift(const uint32_t table[4][256], uint32_t state) {
    return table[0][state & 0xFF] ^ table[1][(state >> 8) & 0xFF] ^ table[2][(state >> 16) & 0xFF] ^ table[3][state >> 24];
}

static void crc32c_fill_shift(uint32_t table[4][256], size_t zeros) {
    static const uint8_t nothing[256];
    uint32_t basis[32];
    for (int bit = 0; bit < 32; ++bit) {
        uint32_t state = (uint32_t)1 << bit;
        for (size_t left = zeros; left;) {
            size_t step = left < sizeof nothing ? left : sizeof nothing;
            state = crc32c_state_software(state, nothing, step);
            left -= step;
        }
        basis[bit] = state;
    }
    for (int byte = 0; byte < 4; ++byte)
        for (int value = 0; value < 256; ++value) {
            uint32_t state = 0;
            for (int bit = 0; bit < 8; ++bit)
                if (value >> bit & 1)
                    state ^= basis[8 * byte + bit];
            table[byte][value] = state;
        }
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>
#include <nmmintrin.h>
#define CRC32C_HARDWARE 1
#define CRC32C_TARGET __attribute__((target("sse4.2,crc32"))) /* crc32: clang does not count it among those of SSE 4.2 */
#define CRC32C_STEP8(state, p) ((uint32_t)_mm_crc32_u64((state), crc32c_load64(p)))
#define CRC32C_STEP1(state, p) _mm_crc32_u8((state), *(p))
static int crc32c_detect(void) {
    /* Not __builtin_cpu_supports: with zig's library, which the wheels of a release are linked with, it finds nothing. */
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_SSE4_2) != 0;
}
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#define CRC32C_HARDWARE 1
#define CRC32C_TARGET __attribute__((target("arch=armv8-a+crc")))
CRC32C_TARGET static inline uint32_t crc32c_arm8(uint32_t state, uint64_t word) {
    __asm__("crc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
    return state;
}
CRC32C_TARGET static inline uint32_t crc32c_arm1(uint32_t state, uint32_t byte) {
    __asm__("crc32cb %w0, %w0, %w1" : "+r"(state) : "r"(byte));
    return state;
}
#define CRC32C_STEP8(state, p) crc32c_arm8((state), crc32c_load64(p))
#define CRC32C_STEP1(state, p) crc32c_arm1((state), *(p))
static int crc32c_detect(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
#define CRC32C_HARDWARE 0
#endif

#if CRC32C_HARDWARE
CRC32C_TARGET static inline uint32_t crc32c_three(uint32_t state, const uint8_t *p, size_t stream,
                                                  const uint32_t shift[4][256]) {
    uint32_t second = 0, third = 0;
    const uint8_t *end = p + stream;
    for (; p < end; p += 8) {
        state = CRC32C_STEP8(state, p);
        second = CRC32C_STEP8(second, p + stream);
        third = CRC32C_STEP8(third, p + 2 * stream);
    }
    return crc32c_shift(shift, crc32c_shift(shift, state) ^ second) ^ third;
}

CRC32C_TARGET static uint32_t crc32c_state_hardware(uint32_t state, const uint8_t *p, size_t n) {
    for (; n && ((uintptr_t)p & 7); ++p, --n)
        state = CRC32C_STEP1(state, p);
    for (; n >= 3 * CRC32C_LONG; p += 3 * CRC32C_LONG, n -= 3 * CRC32C_LONG)
        state = crc32c_three(state, p, CRC32C_LONG, crc32c_shift_long);
    for (; n >= 3 * CRC32C_SHORT; p += 3 * CRC32C_SHORT, n -= 3 * CRC32C_SHORT)
        state = crc32c_three(state, p, CRC32C_SHORT, crc32c_shift_short);
    for (; n >= 8; p += 8, n -= 8)
        state = CRC32C_STEP8(state, p);
    for (; n; ++p, --n)
        state = CRC32C_STEP1(state, p);
    return state;
}
#endif

static void crc32c_prepare(void) {
    for (uint32_t value = 0; value < 256; ++value) {
        uint32_t state = value;
        for (int bit = 0; bit < 8; ++bit)
            state = state & 1 ? CRC32C_POLYNOMIAL ^ (state >> 1) : state >> 1;
        crc32c_slices[0][value] = state;
    }
    for (int slice = 1; slice < 8; ++slice)
        for (int value = 0; value < 256; ++value) {
            uint32_t before = crc32c_slices[slice - 1][value];
            crc32c_slices[slice][value] = crc32c_slices[0][before & 0xFF] ^ (before >> 8);
        }
    crc32c_fill_shift(crc32c_shift_long, CRC32C_LONG);
    crc32c_fill_shift(crc32c_shift_short, CRC32C_SHORT);
#if CRC32C_HARDWARE
    crc32c_hardware_found = crc32c_detect();
#endif
}

static uint32_t crc32c_extend(uint32_t crc, const uint8_t *p, size_t n) {
#if CRC32C_HARDWARE
    if (crc32c_hardware_found)
        return ~crc32c_state_hardware(~crc, p, n);
#endif
    return ~crc32c_state_software(~crc, p, n);
}

static uint32_t crc32c_extend_software(uint32_t crc, const uint8_t *p, size_t n) {
    return ~crc32c_state_software(~crc, p, n);
}

#endif
