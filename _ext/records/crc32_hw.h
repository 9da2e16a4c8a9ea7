/* CRC-32 (reflected polynomial 0xEDB88320), as in messages of format v0 and v1: carry-less multiplication if the CPU has
 * it, or slicing by eight in software.
 *
 * A message is a polynomial over GF(2), and 16 bytes of it may be replaced by their product with x^n mod P, n bits further
 * on: two carry-less multiplications for each step, four lanes side by side to hide their latency. The last 16 bytes, which are
 * congruent to everything that was folded into them, are processed with the table like any other bytes.
 *
 * The functions pass the raw register (no inversion); crc32_extend() inverts on both sides. The table is filled once
 * by crc32_prepare(), which the module runs when it is imported; afterwards it is only read.
 */
#ifndef ODRADEK_CRC32_HW_H
#define ODRADEK_CRC32_HW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32_POLYNOMIAL 0xEDB88320u
#define CRC32_FOLDED_FROM 128  /* below this number of bytes the table is faster */

static uint32_t crc32_slices[8][256];
static int crc32_multiplies;

static uint32_t crc32_state_software(uint32_t state, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = state ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        state = crc32_slices[7][low & 0xFF] ^ crc32_slices[6][(low >> 8) & 0xFF] ^ crc32_slices[5][(low >> 16) & 0xFF] ^
                crc32_slices[4][low >> 24] ^ crc32_slices[3][p[4]] ^ crc32_slices[2][p[5]] ^ crc32_slices[1][p[6]] ^
                crc32_slices[0][p[7]];
    }
    for (; n; ++p, --n)
        state = crc32_slices[0][(state ^ *p) & 0xFF] ^ (state >> 8);
    return state;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

/* x^n mod P, reflected and shifted by one, for data n bits further on: the low half first. */
#define CRC32_BY_64_BYTES _mm_set_epi64x(0x1C6E41596, 0x154442BD4)
#define CRC32_BY_16_BYTES _mm_set_epi64x(0x0CCAA009E, 0x1751997D0)

__attribute__((target("pclmul,sse4.1"))) static inline __m128i crc32_fold(__m128i lane, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1"))) static uint32_t crc32_state(uint32_t state, const uint8_t *p, size_t n) {
    const __m128i *at = (const __m128i *)p;
    __m128i lanes[4], by = CRC32_BY_64_BYTES;
    uint8_t rest[16];
    if (n < CRC32_FOLDED_FROM || !crc32_multiplies)
        return crc32_state_software(state, p, n);
    for (int i = 0; i < 4; ++i)
        lanes[i] = _mm_loadu_si128(at++);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)state));
    for (n -= 64; n >= 64; n -= 64)
        for (int i = 0; i < 4; ++i)
            lanes[i] = crc32_fold(lanes[i], by, _mm_loadu_si128(at++));
    by = CRC32_BY_16_BYTES;
    for (int i = 1; i < 4; ++i)
        lanes[0] = crc32_fold(lanes[0], by, lanes[i]);
    for (; n >= 16; n -= 16)
        lanes[0] = crc32_fold(lanes[0], by, _mm_loadu_si128(at++));
    _mm_storeu_si128((__m128i *)rest, lanes[0]);
    return crc32_state_software(crc32_state_software(0, rest, sizeof rest), (const uint8_t *)at, n);
}

static int crc32_can_multiply(void) { /* see crc32c_detect */
    const unsigned needed = bit_PCLMUL | bit_SSE4_1;
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & needed) == needed;
}
#else
#define crc32_state crc32_state_software
static int crc32_can_multiply(void) { return 0; }
#endif

static void crc32_prepare(void) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; ++bit)
            state = (state >> 1) ^ (CRC32_POLYNOMIAL & (0u - (state & 1)));
        crc32_slices[0][byte] = state;
    }
    for (int slice = 1; slice < 8; ++slice)
        for (int byte = 0; byte < 256; ++byte) {
            uint32_t before = crc32_slices[slice - 1][byte];
            crc32_slices[slice][byte] = (before >> 8) ^ crc32_slices[0][before & 0xFF];
        }
    crc32_multiplies = crc32_can_multiply();
}

static inline uint32_t crc32_extend(uint32_t crc, const uint8_t *p, size_t n) { return ~crc32_state(~crc, p, n); }

static inline uint32_t crc32_extend_software(uint32_t crc, const uint8_t *p, size_t n) {
    return ~crc32_state_software(~crc, p, n);
}

#endif
