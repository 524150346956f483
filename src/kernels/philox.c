#include "kernels/bodies.h"
#include "kernels/vphilox.h"

void KERNEL(philox)(uint32_t *words, const uint32_t counter[4], uint64_t seed, size_t n) {
    const philox_head head = philox_for_head(seed, counter[2], counter[3]);
    const philox_keys keys = philox_for_keys(&head, counter[0]);
    for (size_t i = 0; i < n; i += VLEN) {
        vwide count[PHILOX_HALVES], drawn[PHILOX_HALVES][4];
        philox_queries queries[PHILOX_HALVES];
        philox_count(count, (uint64_t)counter[1] + i);
        VEACH (half, PHILOX_HALVES)
            queries[half] = philox_for_queries(&head, count[half]);
        philox_words(PHILOX_HALVES, drawn, &head, &keys, queries);
        for (int word = 0; word < 4; word++) {
            const vuint joined = philox_join(drawn, word);
            for (size_t lane = 0; lane < VLEN && i + lane < n; lane++)
                words[4 * (i + lane) + (size_t)word] = (uint32_t)joined[lane];
        }
    }
}
