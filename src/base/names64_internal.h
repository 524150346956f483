/*
 * names64_internal.h - as attn/names64.h, for internal functions that cross files.
 */
#ifndef ATTNI_NAMES64_INTERNAL_H
#define ATTNI_NAMES64_INTERNAL_H

#define attni_alibi_row_backward        attni64_alibi_row_backward
#define attni_alibi_slope               attni64_alibi_slope
#define attni_axes_overlap              attni64_axes_overlap
#define attni_band_blocked_is_zero      attni64_band_blocked_is_zero
#define attni_band_fill_beyond          attni64_band_fill_beyond
#define attni_band_fill_blocked         attni64_band_fill_blocked
#define attni_bias_backward             attni64_bias_backward
#define attni_bias_check                attni64_bias_check
#define attni_column_sums_add           attni64_column_sums_add
#define attni_cross_entropy_backward    attni64_cross_entropy_backward
#define attni_cross_entropy_check       attni64_cross_entropy_check
#define attni_cross_entropy_forward     attni64_cross_entropy_forward
#define attni_dbias_check               attni64_dbias_check
#define attni_decode_attend             attni64_decode_attend
#define attni_decode_attend_long        attni64_decode_attend_long
#define attni_decode_is_long            attni64_decode_is_long
#define attni_decode_write              attni64_decode_write
#define attni_dropout_check             attni64_dropout_check
#define attni_dropout_row               attni64_dropout_row
#define attni_fused_backward            attni64_fused_backward
#define attni_fused_carve               attni64_fused_carve
#define attni_fused_forward             attni64_fused_forward
#define attni_fused_head_of             attni64_fused_head_of
#define attni_fused_run                 attni64_fused_run
#define attni_fused_weights             attni64_fused_weights
#define attni_gemm                      attni64_gemm
#define attni_gemm_parallel             attni64_gemm_parallel
#define attni_gemm_parallel_after       attni64_gemm_parallel_after
#define attni_gradcheck_evaluate        attni64_gradcheck_evaluate
#define attni_gradcheck_probe           attni64_gradcheck_probe
#define attni_kernels_for               attni64_kernels_for
#define attni_kernels_get               attni64_kernels_get
#define attni_kv_cache_check            attni64_kv_cache_check
#define attni_kv_cache_grow             attni64_kv_cache_grow
#define attni_kv_cache_has_room         attni64_kv_cache_has_room
#define attni_kv_cache_left             attni64_kv_cache_left
#define attni_mask_resolve              attni64_mask_resolve
#define attni_masked_product            attni64_masked_product
#define attni_masked_product_transposed attni64_masked_product_transposed
#define attni_mha_check_backward        attni64_mha_check_backward
#define attni_mha_check_forward         attni64_mha_check_forward
#define attni_mha_check_params          attni64_mha_check_params
#define attni_mha_check_saved           attni64_mha_check_saved
#define attni_mha_resolve               attni64_mha_resolve
#define attni_offsets_check             attni64_offsets_check
#define attni_operand_clean             attni64_operand_clean
#define attni_pairs_check               attni64_pairs_check
#define attni_places_wrap               attni64_places_wrap
#define attni_project                   attni64_project
#define attni_project_back              attni64_project_back
#define attni_reference_backward        attni64_reference_backward
#define attni_reference_forward         attni64_reference_forward
#define attni_rope_check                attni64_rope_check
#define attni_rope_rotate               attni64_rope_rotate
#define attni_rope_turn                 attni64_rope_turn
#define attni_rope_turn_all             attni64_rope_turn_all
#define attni_score_terms_row_forward   attni64_score_terms_row_forward
#define attni_scores_band_backward      attni64_scores_band_backward
#define attni_scores_band_forward       attni64_scores_band_forward
#define attni_sdpa_has_dbias            attni64_sdpa_has_dbias
#define attni_sdpa_resume               attni64_sdpa_resume
#define attni_shape_check               attni64_shape_check
#define attni_softcap                   attni64_softcap
#define attni_softcap_check             attni64_softcap_check
#define attni_softcap_row_backward      attni64_softcap_row_backward
#define attni_softmax_row_backward      attni64_softmax_row_backward
#define attni_softmax_row_forward       attni64_softmax_row_forward
#define attni_tensor_check              attni64_tensor_check
#define attni_values_band_backward      attni64_values_band_backward
#define attni_values_band_forward       attni64_values_band_forward
#define attni_ways_join                 attni64_ways_join

#endif
